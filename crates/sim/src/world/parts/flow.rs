//! The requests of a load: what they cost, and what their clients were told.

use std::rc::Rc;

use weal_control::flow::pipeline::ClassIndex;
use weal_model::ClassName;
use weal_rng::{self as random, Rng};
use weal_scenario::workload::Page;
use weal_scenario::{LoadSource, Scenario};

use super::app::App;
use super::clients::ClientCounters;
use super::tasks::{TaskStep, steps_of_request};

/// The requests of a load, or of one of its pages.
pub struct RequestFlow {
    /// Its load.
    pub load: usize,
    pub app: usize,
    pub class: ClassName,
    /// Where its class is in the gateway, which may differ from one gateway to the next; `None` when no route leads there.
    pub index: Option<ClassIndex>,
    /// `app/class`.
    pub name: String,
    pub steps: Rc<[TaskStep]>,
    /// CPU time relative to the application's.
    pub factor: f64,
    pub work: Rng,
    /// What became of its requests.
    pub client_counters: ClientCounters,
}

impl RequestFlow {
    /// One, or one per page.
    pub fn of_load(scenario: &Scenario, apps: &[App], number: usize, load: &LoadSource) -> Vec<Self> {
        let flow = |class: &str, factor: f64, stream: String| {
            let app = apps.iter().position(|app| app.name.as_str() == load.app).expect("loads are checked when read");
            let class = ClassName::from(class);
            Self {
                load: number,
                app,
                index: apps[app].admission.class(&class),
                name: format!("{}/{class}", load.app),
                steps: steps_of_request(scenario, &load.app, class.as_str()),
                class,
                factor,
                work: random::stream(scenario.seed, &stream),
                client_counters: ClientCounters::default(),
            }
        };
        if load.pages.is_empty() {
            return vec![flow(&load.class, load.work_factor, format!("{}/work", load.name))];
        }
        let page = |page: &Page| {
            let stream = format!("{}/{}/work", load.name, page.name);
            flow(&page.class, load.work_factor * page.work_factor, stream)
        };
        load.pages.iter().map(page).collect()
    }
}
