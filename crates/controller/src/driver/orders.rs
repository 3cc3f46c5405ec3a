//! What the API asks of the loop. Each is answered at once, by what is known.

use std::sync::Arc;

use tokio::sync::oneshot;
use weal_control::cycle::{self, Note};
use weal_engine::Engine;
use weal_model::{AppName, EventKind, NodeName, Rung, WhyNode};
use weal_protocol::Refusal;
use weal_protocol::controller::{ConfigRefused, ConfigTaken, ConfigUpdate, SleepTaken, WakeTaken};

use super::Driver;
use crate::desired::{self, Desired};

/// What the API asks.
#[derive(Debug)]
pub(crate) enum Order {
    /// Take this config.
    Config { update: ConfigUpdate, reply: oneshot::Sender<Result<ConfigTaken, ConfigRefused>> },
    /// Say why an application is on a node or not.
    WhyNode { app: AppName, node: NodeName, reply: oneshot::Sender<Option<WhyNode>> },
    /// Let this application sleep until somebody asks for it.
    Sleep { app: AppName, rung: Option<Rung>, reply: oneshot::Sender<Result<SleepTaken, Refusal>> },
    /// Wake it.
    Wake { app: AppName, reply: oneshot::Sender<Result<WakeTaken, Refusal>> },
}

impl<E: Engine> Driver<E> {
    /// Answers, or has it answered. Whoever asked may have gone.
    pub(super) fn handle_order(&mut self, order: Order) {
        let now = self.now();
        match order {
            Order::Config { update, reply } => self.take_config(update, reply),
            Order::WhyNode { app, node, reply } => self.why_node(app, node, reply),
            Order::Sleep { app, rung, reply } => {
                self.record_order(cycle::Order::Sleep { app: app.clone(), rung });
                let _ = reply.send(self.cycle.handle_sleep(now, &app, rung));
            }
            Order::Wake { app, reply } => {
                self.record_order(cycle::Order::Wake { app: app.clone() });
                let _ = reply.send(self.cycle.handle_wake(now, &app));
            }
        }
    }

    fn record_order(&mut self, order: cycle::Order) {
        let now = self.now();
        self.recorder.handle_input(now, &cycle::Input::Order(order));
    }

    /// Takes a config as a whole or not at all. It is in force at once; the answer comes when it is stored, or cannot be.
    fn take_config(&mut self, update: ConfigUpdate, reply: oneshot::Sender<Result<ConfigTaken, ConfigRefused>>) {
        let read = if update.refused.is_empty() {
            desired::read(&update.text, &update.path)
        } else {
            Err(ConfigRefused { error: update.refused, diagnostics: Vec::new() })
        };
        let (spec, warnings) = match read {
            Ok(read) => read,
            Err(refused) => {
                if !update.dry_run {
                    self.show_refused(&refused.error);
                }
                let _ = reply.send(Err(refused));
                return;
            }
        };
        let changes = desired::changes(self.desired.as_ref().map(|desired| &*desired.spec), &spec);
        let generation = self.desired.as_ref().map_or(0, |desired| desired.generation);
        let same = self.desired.as_ref().is_some_and(|now| *now.spec == spec && now.text == update.text);
        if update.dry_run || same {
            if !update.dry_run {
                self.config_error = None;
                self.show(false);
            }
            let _ = reply.send(Ok(ConfigTaken { generation, changes, warnings }));
            return;
        }
        let desired = Desired { generation: generation + 1, text: update.text, path: update.path, spec: Arc::new(spec) };
        self.put_in_force(&desired, &changes);
        let taken = ConfigTaken { generation: desired.generation, changes, warnings };
        let board = Arc::clone(&self.board);
        tokio::spawn(async move {
            let mut taken = taken;
            if let Err(error) = board.store.save_config(desired.stored()).await {
                taken.warnings.push(format!("the config is in force but not stored yet: {error}"));
            }
            let _ = reply.send(Ok(taken));
        });
    }

    fn show_refused(&mut self, error: &str) {
        self.board.note(Note::error(EventKind::Config, format!("weal did not take the config: {error}")));
        self.config_error = Some(error.to_owned());
        self.show(false);
    }

    fn put_in_force(&mut self, desired: &Desired, changes: &[String]) {
        let generation = desired.generation;
        let text = match changes {
            [] => format!("config {generation} is in force; nothing that runs changes"),
            [only] => format!("config {generation} is in force: {only}"),
            [first, rest @ ..] => format!("config {generation} is in force: {first}, and {} more changes", rest.len()),
        };
        self.board.note(Note::info(EventKind::Config, text));
        self.desired = Some(desired.clone());
        self.config_error = None;
        let config = self.hands.config(desired);
        self.handle(cycle::Input::Config(config));
    }

    /// Asks what a plan would be made from now, beside the loop.
    fn why_node(&self, app: AppName, node: NodeName, reply: oneshot::Sender<Option<WhyNode>>) {
        let request = self.cycle.question(self.now());
        tokio::task::spawn_blocking(move || {
            let known = request.filter(|request| request.policy.pool.apps.contains_key(&app));
            let _ = reply.send(known.map(|request| request.why_node(&app, &node)));
        });
    }
}
