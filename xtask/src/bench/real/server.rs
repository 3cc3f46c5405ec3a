//! The servers that are put to sleep, from Maven Central.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use weal_model::naming::parts;
use weal_model::{AppName, Bytes, HealthCheck, HealthProbe, InstanceId, NodeName, RestartPolicy};
use weal_protocol::node::InstanceSpec;

use super::machine::call;

/// Which server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Server {
    /// WildFly 35, the successor of the paper's JBoss.
    Wildfly,
    /// Tomcat 10.
    Tomcat,
}

const WILDFLY: &str = "35.0.1.Final";
const TOMCAT: &str = "10.1.40";

impl Server {
    /// Its name with its version.
    pub fn title(self) -> String {
        match self {
            Self::Wildfly => format!("WildFly {WILDFLY}"),
            Self::Tomcat => format!("Tomcat {TOMCAT}"),
        }
    }

    /// Fetches and unpacks it below `folder` unless it is there.
    pub fn prepare(self, folder: &Path) -> Result<PathBuf> {
        let (artifact, file, home) = match self {
            Self::Wildfly => {
                let name = format!("wildfly-{WILDFLY}");
                (format!("org.wildfly:wildfly-dist:{WILDFLY}:zip"), format!("wildfly-dist-{WILDFLY}.zip"), name)
            }
            Self::Tomcat => {
                let name = format!("apache-tomcat-{TOMCAT}");
                (format!("org.apache.tomcat:tomcat:{TOMCAT}:zip"), format!("tomcat-{TOMCAT}.zip"), name)
            }
        };
        let home = folder.join(home);
        if home.is_dir() {
            return Ok(home);
        }
        fs::create_dir_all(folder)?;
        let (out, archive) = (format!("-DoutputDirectory={}", folder.display()), folder.join(file));
        call("mvn", &["--quiet", "--batch-mode", "dependency:copy", &format!("-Dartifact={artifact}"), &out])?;
        call("unzip", &["-q", "-o", &archive.display().to_string(), "-d", &folder.display().to_string()])?;
        fs::remove_file(archive)?;
        Ok(home)
    }

    /// An instance of it named `id`, from `home`, with what it writes below `folder`.
    pub fn spec(self, id: &str, home: &Path, folder: &Path) -> Result<InstanceSpec> {
        let base = folder.join(id);
        let word = |text: &str| text.to_owned();
        let home_text = home.display().to_string();
        let run: Vec<String> = match self {
            Self::Wildfly => {
                copy(&home.join("standalone/configuration"), &base.join("configuration"))?;
                fs::create_dir_all(base.join("deployments"))?;
                let defines = [
                    format!("-Djboss.home.dir={home_text}"),
                    format!("-Djboss.server.base.dir={}", base.display()),
                    format!("-Dorg.jboss.boot.log.file={}/server.log", base.display()),
                    format!("-Dlogging.configuration=file:{}/configuration/logging.properties", base.display()),
                    word("-Djboss.http.port=$PORT"),
                    word("-Djboss.https.port=0"),
                    word("-Djboss.management.http.port=0"),
                    word("-Djboss.bind.address=127.0.0.1"),
                    word("-Djava.net.preferIPv4Stack=true"),
                    word("-Djava.awt.headless=true"),
                ];
                // The heap that its own start script asks for.
                let heap = ["-Xms64m", "-Xmx512m", "-XX:MetaspaceSize=96M", "-XX:MaxMetaspaceSize=256m"].map(word);
                let opens = ["java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.util"];
                let opens = opens.map(|package| format!("--add-opens=java.base/{package}=ALL-UNNAMED"));
                let main = [word("-jar"), format!("{home_text}/jboss-modules.jar"), word("-mp"), format!("{home_text}/modules")];
                let main = main.into_iter().chain([word("org.jboss.as.standalone")]);
                [word("java")].into_iter().chain(heap).chain(opens).chain(defines).chain(main).collect()
            }
            Self::Tomcat => {
                copy(&home.join("conf"), &base.join("conf"))?;
                let file = base.join("conf/server.xml");
                let server = fs::read_to_string(&file)?;
                let server = server.replace("port=\"8080\"", "port=\"${port}\"").replace("port=\"8005\"", "port=\"-1\"");
                fs::write(file, server)?;
                for folder in ["logs", "temp", "work", "webapps"] {
                    fs::create_dir_all(base.join(folder))?;
                }
                copy(&home.join("webapps/examples"), &base.join("webapps/ROOT"))?;
                let classes = format!("{home_text}/bin/bootstrap.jar:{home_text}/bin/tomcat-juli.jar");
                let defines =
                    [format!("-Dcatalina.home={home_text}"), format!("-Dcatalina.base={}", base.display()), word("-Dport=$PORT")];
                let main = [word("-cp"), classes, word("org.apache.catalina.startup.Bootstrap"), word("start")];
                [word("java"), word("-Xmx256m")].into_iter().chain(defines).chain(main).collect()
            }
        };
        // The agent runs it as a user of its own, which writes there.
        open_to_all(&base)?;
        Ok(spec(id, run))
    }
}

/// An instance that runs `run` and is asked at `/`.
pub fn spec(id: &str, run: Vec<String>) -> InstanceSpec {
    let id = InstanceId::from(id);
    InstanceSpec {
        app: parts(&id).map_or_else(|| AppName::from(id.as_str()), |(app, _)| app),
        id,
        node: NodeName::from("n1"),
        run,
        env: BTreeMap::new(),
        cwd: "/".into(),
        user: None,
        sandbox: weal_model::SandboxSpec::off(),
        memory: Bytes::gib(1),
        cpu_limit: None,
        health: HealthCheck {
            probe: HealthProbe::Http { path: "/".into() },
            interval_s: 3600.0,
            timeout_s: 30.0,
            start_timeout_s: 300.0,
            failures: 3,
            replace_after: 0,
            send_proxy: None,
            host: None,
        },
        restart: RestartPolicy::Never,
        stop_timeout_s: 10.0,
        on_resume: Vec::new(),
        pass_socket: false,
        datagrams: false,
        needs: BTreeMap::new(),
        revision: "bench".into(),
        job: None,
        process: Default::default(),
        step_of: None,
    }
}

/// Lets every user read and write what is in `folder`.
fn open_to_all(folder: &Path) -> Result<()> {
    let mode = if folder.is_dir() { 0o777 } else { 0o666 };
    fs::set_permissions(folder, fs::Permissions::from_mode(mode))?;
    if folder.is_dir() {
        for entry in fs::read_dir(folder)?.flatten() {
            open_to_all(&entry.path())?;
        }
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).with_context(|| format!("{} is missing", from.display()))?.flatten() {
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
