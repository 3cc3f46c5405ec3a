//! Where the experiments take place: the programs, the server with the paper's applications, and a node of its own.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use weal_model::HealthProbe;
use weal_protocol::node::InstanceSpec;

use crate::bench::real::agent::Agent;
use crate::bench::real::server::Server;
use crate::programs::release;

/// The page that answers when the applications are deployed; it asks for nothing.
pub const NULL_PAGE: &str = "/bench/null.jsp";
const PAGES: [(&str, &str); 3] = [
    ("work.jsp", include_str!("pages/work.jsp")),
    ("memory.jsp", include_str!("pages/memory.jsp")),
    ("null.jsp", include_str!("pages/null.jsp")),
];

/// What every case needs.
pub struct Site {
    /// For what the case writes; gone afterwards.
    pub folder: PathBuf,
    /// Fewer rounds.
    pub quick: bool,
    /// The machine, in a line.
    pub machine: String,
    home: PathBuf,
    programs: PathBuf,
}

impl Site {
    /// Builds the programs and fetches the server.
    pub fn prepare(folder: &Path, quick: bool, machine: &str) -> Result<Self> {
        let selection = ["--package", "weal", "--package", "weal-node", "--bin", "weal", "--example", "node_fixture"];
        let programs = release(&selection)?;
        let home = Server::Wildfly.prepare(&crate::programs::root().join("target/bench"))?;
        Ok(Self { folder: folder.to_owned(), quick, machine: machine.to_owned(), home, programs })
    }

    /// weal itself.
    pub fn weal(&self) -> PathBuf {
        self.programs.join("weal")
    }

    /// Rounds of a measurement that takes `full` of them.
    pub fn rounds(&self, full: usize) -> usize {
        if self.quick { 2 } else { full }
    }

    /// An agent whose node is the machine, with `prefetch` where it is not empty.
    pub fn agent(&self, prefetch: &str) -> Result<Agent> {
        let more: &[&str] = if prefetch.is_empty() { &[] } else { &["--prefetch", prefetch] };
        Agent::start(&self.fixture(), &self.folder.join("state"), more)
    }

    /// The agent's program.
    pub fn fixture(&self) -> PathBuf {
        self.programs.join("examples/node_fixture")
    }

    /// What runs the server named `id`, whose folder is there.
    pub fn command(&self, id: &str) -> Result<Vec<String>> {
        Ok(Server::Wildfly.spec(id, &self.home, &self.folder)?.run)
    }

    /// A WildFly named `id` with the paper's applications, asked for its health at `health`.
    pub fn server(&self, id: &str, health: &str) -> Result<InstanceSpec> {
        let mut spec = Server::Wildfly.spec(id, &self.home, &self.folder)?;
        let deployments = self.folder.join(id).join("deployments");
        let pages = deployments.join("bench.war");
        fs::create_dir_all(&pages)?;
        for (name, text) in PAGES {
            fs::write(pages.join(name), text)?;
        }
        fs::write(deployments.join("bench.war.dodeploy"), "").context("cannot deploy the applications")?;
        spec.health.probe = HealthProbe::Http { path: health.into() };
        Ok(spec)
    }
}
