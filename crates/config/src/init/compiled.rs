//! What has to be built first: Go, Rust and Java with Maven.

use super::look::Look;
use super::program::{Program, words};

pub(super) fn go(folder: &dyn Look) -> Option<Program> {
    let text = folder.read("go.mod")?;
    let module = text.lines().find_map(|line| line.trim().strip_prefix("module "))?.trim().trim_matches('"');
    let is_version = |part: &&str| part.strip_prefix('v').is_some_and(|rest| rest.chars().all(|c| c.is_ascii_digit()));
    let name = module.rsplit('/').find(|part| !is_version(part))?.to_owned();
    let package = if folder.has("main.go") { ".".to_owned() } else { format!("./cmd/{name}") };
    let program = Program::new("go.mod", vec![format!("./{name}")]).named(Some(name.clone()));
    Some(program.with_note(format!("build it first: go build -o {name} {package}")))
}

pub(super) fn cargo(folder: &dyn Look) -> Option<Program> {
    let manifest: toml::Table = folder.read("Cargo.toml")?.parse().ok()?;
    let package = manifest.get("package")?.as_table()?;
    let text = |value: Option<&toml::Value>| value.and_then(toml::Value::as_str).map(str::to_owned);
    let binary = manifest.get("bin").and_then(|bins| text(bins.get(0)?.get("name")));
    let name = text(package.get("default-run")).or(binary).or_else(|| text(package.get("name")))?;
    let program = Program::new("Cargo.toml", vec![format!("./target/release/{name}")]).named(Some(name));
    Some(program.with_note("build it first: cargo build --release"))
}

pub(super) fn maven(folder: &dyn Look) -> Option<Program> {
    let text = folder.read("pom.xml")?;
    let document = roxmltree::Document::parse(&text).ok()?;
    let project = document.root_element();
    let child = |node: roxmltree::Node, name: &str| {
        let child = node.children().find(|child| child.has_tag_name(name) || child.tag_name().name() == name)?;
        Some(child.text()?.trim().to_owned())
    };
    let below = |name: &str| project.children().find(|child| child.tag_name().name() == name);
    let name = child(project, "artifactId")?;
    let version = child(project, "version").or_else(|| child(below("parent")?, "version"))?;
    let built = below("build").and_then(|build| child(build, "finalName"));
    let jar = format!("target/{}.jar", built.unwrap_or_else(|| format!("{name}-{version}")));
    let arguments = match () {
        () if text.contains("spring-boot") => vec!["-jar", &jar, "--server.address=127.0.0.1", "--server.port=$PORT"],
        () if text.contains("quarkus") => vec!["-Dquarkus.http.host=127.0.0.1", "-Dquarkus.http.port=$PORT", "-jar", &jar],
        () => vec!["-jar", &jar],
    };
    let run = [words("java"), arguments.into_iter().map(str::to_owned).collect()].concat();
    let program = Program::new("pom.xml", run).named(Some(name)).with_memory("512MiB");
    Some(program.with_note("build it first: mvn package"))
}
