//! Other applications than JBoss, as section 4.1 looks at WebSphere: Tomcat, a wiki in PHP, a catalogue in Python.

use std::path::Path;

use anyhow::{Context, Result};
use weal_protocol::node::InstanceSpec;
use weal_reproduce::{Record, Reproduction};

use super::site::{NULL_PAGE, Site};
use super::ways::{ENHANCED, PARKED, REGULAR, WARM, Way, settle};
use crate::bench::real::agent::{Agent, first_byte_s};
use crate::bench::real::median;
use crate::bench::real::server::{Server, spec};

const WAYS: [Way; 4] = [REGULAR, ENHANCED, PARKED, WARM];
const WIKI: &str = "/usr/share/dokuwiki";
const CATALOGUE: &str = include_str!("pages/catalogue.py");
/// Requests before it rests.
const SERVED: usize = 200;

/// An application, and the page that is asked for.
struct Application {
    name: &'static str,
    path: &'static str,
    spec: InstanceSpec,
}

/// Runs all that can be run here.
pub fn run(site: &Site) -> Result<Reproduction> {
    let mut record = Record::new(
        "other-applications",
        "Al-Qudah et al. 4.1 and 4.3, with other applications",
        "starts are slow and resumes fast with other application servers too",
        &format!("each has answered {SERVED} requests; from the order until the first byte; swap on a file; on {}", site.machine),
    );
    for application in applications(site, &mut record)? {
        measure(site, &application, &mut record).with_context(|| application.name.to_owned())?;
    }
    Ok(record.done())
}

fn applications(site: &Site, record: &mut Record) -> Result<Vec<Application>> {
    let mut all = vec![Application { name: "WildFly 35", path: NULL_PAGE, spec: site.server("wildfly-1", NULL_PAGE)? }];
    let home = Server::Tomcat.prepare(&crate::programs::root().join("target/bench"))?;
    all.push(Application { name: "Tomcat 10", path: "/", spec: Server::Tomcat.spec("tomcat-1", &home, &site.folder)? });
    if Path::new(WIKI).is_dir() {
        let mut wiki = spec("wiki-1", ["php", "-S", "127.0.0.1:$PORT", "-t", WIKI].map(str::to_owned).to_vec());
        // Two processes that share memory, as pre-forking servers do.
        wiki.env.insert("PHP_CLI_SERVER_WORKERS".into(), "2".into());
        all.push(Application { name: "DokuWiki on PHP", path: "/", spec: wiki });
    } else {
        record.assume("DokuWiki is not installed here (apt-get install dokuwiki), so PHP is left out");
    }
    let program = site.folder.join("catalogue.py");
    std::fs::write(&program, CATALOGUE)?;
    let mut catalogue = spec("catalogue-1", vec!["python3".to_owned(), program.display().to_string(), "$PORT".to_owned()]);
    // Where python3 is a script that looks for the interpreter.
    catalogue.env.insert("PATH".into(), std::env::var("PATH")?);
    all.push(Application { name: "a catalogue on Python", path: "/", spec: catalogue });
    Ok(all)
}

fn measure(site: &Site, application: &Application, record: &mut Record) -> Result<()> {
    let id = application.spec.id.as_str();
    let mut agent = site.agent("")?;
    let instance = agent.start_ready(&application.spec)?;
    for _ in 0..SERVED {
        first_byte_s(instance.address, application.path)?;
    }
    let name = application.name;
    record.number(&format!("{name}: start, s"), instance.start_took_s.context("it has been started")?);
    let mut medians = Vec::new();
    for way in &WAYS {
        agent = agent.replaced(&site.fixture(), way.prefetch)?;
        let mut took = Vec::new();
        for round in 0..site.rounds(5) + way.lessons() {
            way.put_to_rest(&agent, id)?;
            let took_s = way.activate_s(&agent, id, application.path)?;
            settle();
            took.extend((round >= way.lessons()).then_some(took_s));
        }
        record.number(&format!("{name}: {}, ms", way.name), median(&took) * 1e3);
        medians.push(median(&took));
    }
    record.number(&format!("{name}: MB held when parked"), held_parked(&agent, id)?);
    record.property(&format!("{name}: weal's working set is no slower than prefetching all"), medians[2] <= 1.05 * medians[1]);
    agent.stop(id)
}

fn held_parked(agent: &Agent, id: &str) -> Result<f64> {
    PARKED.put_to_rest(agent, id)?;
    Ok(agent.instance(id)?.memory_used.unwrap_or_default().0 as f64 / 1e6)
}
