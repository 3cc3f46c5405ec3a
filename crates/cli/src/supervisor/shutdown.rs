//! The end, in order: the gateway finishes its requests, the controller stops deciding, instances are stopped so that
//! nobody loses what it needs, then the agent ends.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rustix::process::Signal;
use weal_model::{AppName, InstanceId, InstanceState};
use weal_protocol::node::{APPLY, AgentObservation, Command, OBSERVE};

use super::console::Console;
use super::pulse;
use crate::client::Client;
use crate::found;
use crate::output::Tone;
use crate::process::ProcessId;
use crate::role_name::RoleName;
use crate::state::StateDir;

/// The gateway ends its drain by a deadline of its own; this is for one that hangs.
const ROLE_LIMIT: Duration = Duration::from_secs(45);
/// A role that answers nothing for so long is stuck.
const STUCK_AFTER: Duration = Duration::from_secs(2);
/// The agent answers when the processes are gone: their own stop timeouts plus this.
const STOP_MARGIN: Duration = Duration::from_secs(15);

/// What each application needs.
pub type Needs = BTreeMap<AppName, BTreeSet<AppName>>;

/// What is to be ended.
pub struct Shutdown {
    /// Where.
    pub state: StateDir,
    /// Who is told.
    pub console: Console,
    /// The roles' processes that live.
    pub roles: BTreeMap<RoleName, Vec<ProcessId>>,
    /// From the config file, in case that the controller cannot be asked.
    pub needs: Needs,
}

impl Shutdown {
    /// Ends everything. Returns what could not be ended, in words.
    pub async fn run(mut self) -> Vec<String> {
        if let Ok(config) = Client::new(&self.state).with_timeout(Duration::from_secs(2)).config().await
            && let Some(spec) = &config.spec
        {
            self.needs = needs_of(spec);
        }
        let mut left = self.end(RoleName::Gateway, "finishing requests").await;
        left.extend(self.end(RoleName::Controller, "").await);
        self.let_go_on(RoleName::Node);
        if let Err(error) = self.stop_instances().await {
            self.console.tell(Tone::Warn, "the node agent cannot stop instances:", &format!("{error}; stopping them directly"));
            // One that comes back to life would start them again.
            left.extend(self.kill(RoleName::Node).await);
            left.extend(self.stop_directly().await);
        }
        left.extend(self.end(RoleName::Node, "").await);
        left.extend(self.end_strays().await);
        left.extend(
            found::roles(&self.state).into_iter().map(|role| format!("the {} (pid {})", role.role.name(), role.process.pid())),
        );
        left
    }

    /// Ends what applications left behind outside their instances. Returns what runs on, in words.
    async fn end_strays(&self) -> Vec<String> {
        let root = self.state.root.clone();
        match tokio::task::spawn_blocking(move || weal_node::end_strays(&root)).await {
            Ok(Ok(strays)) => {
                for stray in strays.ended {
                    self.console.tell(
                        Tone::Warn,
                        "left behind:",
                        &format!("{stray} ran on outside of every instance, and was killed"),
                    );
                }
                strays.left.into_iter().map(|stray| format!("{stray} of an application runs on")).collect()
            }
            Ok(Err(error)) => vec![format!("it cannot be told what applications left behind: {error}")],
            Err(error) => vec![error.to_string()],
        }
    }

    fn processes(&self, role: RoleName) -> &[ProcessId] {
        self.roles.get(&role).map_or(&[], Vec::as_slice)
    }

    /// A role that somebody stopped goes on, so that it can end in order.
    fn let_go_on(&self, role: RoleName) {
        for process in self.processes(role) {
            process.signal(Signal::CONT);
        }
    }

    /// Ends a role, and says what of it does not end. One that does not even answer has nothing to finish and is killed.
    async fn end(&self, role: RoleName, what: &str) -> Vec<String> {
        let living: Vec<_> = self.processes(role).iter().filter(|process| process.is_alive()).collect();
        if living.is_empty() {
            return Vec::new();
        }
        self.console.live(&format!("stopping the {} {what}", role.name()));
        self.let_go_on(role);
        let limit = if pulse::answers(&self.state, role, STUCK_AFTER).await { ROLE_LIMIT } else { Duration::ZERO };
        for process in living {
            process.signal(Signal::TERM);
            if !process.ended_within(limit).await {
                self.console.tell(Tone::Warn, role.name(), "did not end in time and is killed");
            }
        }
        self.kill(role).await
    }

    async fn kill(&self, role: RoleName) -> Vec<String> {
        let mut left = Vec::new();
        for process in self.processes(role) {
            if !process.kill().await {
                left.push(format!("the {} (pid {}) hangs in the kernel", role.name(), process.pid()));
            }
        }
        left
    }

    async fn stop_instances(&self) -> Result<(), weal_rpc::Error> {
        let agent = weal_rpc::Client::new(self.state.socket(RoleName::Node), STUCK_AFTER);
        loop {
            let observation = agent.call(OBSERVE, &()).await?;
            let wave = next_wave(&observation, &self.needs);
            if wave.is_empty() {
                return Ok(());
            }
            self.stop_wave(&agent, &observation, wave).await?;
        }
    }

    async fn stop_wave(
        &self,
        agent: &weal_rpc::Client,
        observation: &AgentObservation,
        wave: Vec<InstanceId>,
    ) -> Result<(), weal_rpc::Error> {
        let names: Vec<_> = wave.iter().map(ToString::to_string).collect();
        self.console.live(&format!("stopping {}", names.join(", ")));
        let of_wave = observation.instances.iter().filter(|instance| wave.contains(&instance.spec.id));
        let longest = of_wave.map(|instance| instance.spec.stop_timeout_s).fold(0.0, f64::max);
        let agent = agent.with_timeout(Duration::from_secs_f64(longest) + STOP_MARGIN);
        let commands = wave.into_iter().map(|instance| Command::Stop { instance }).collect();
        for outcome in agent.call(APPLY, &commands).await? {
            match outcome.refusal {
                Some(refusal) => self.console.tell(Tone::Bad, outcome.instance.as_str(), &refusal.to_string()),
                None => self.console.say(&format!("  {:<16} stopped in {:.1}s", outcome.instance.as_str(), outcome.took_s)),
            }
        }
        Ok(())
    }

    async fn stop_directly(&self) -> Vec<String> {
        let root = self.state.root.clone();
        match tokio::task::spawn_blocking(move || weal_node::stop_all(&root)).await {
            Ok(Ok(left)) => left,
            Ok(Err(error)) => vec![error.to_string()],
            Err(error) => vec![error.to_string()],
        }
    }
}

/// What each application of `spec` needs.
pub fn needs_of(spec: &weal_model::PoolSpec) -> Needs {
    spec.apps.iter().map(|(name, app)| (name.clone(), app.needs.clone())).collect()
}

/// The instances that no other living instance's application needs: they can be stopped now. Never empty while there are
/// instances: a circle, which configs cannot have, would be stopped at once.
fn next_wave(observation: &AgentObservation, needs: &Needs) -> Vec<InstanceId> {
    let living: Vec<_> = observation.instances.iter().filter(|one| one.state != InstanceState::Stopped).collect();
    let apps: BTreeSet<&AppName> = living.iter().map(|one| &one.spec.app).collect();
    let needed: BTreeSet<&AppName> = apps.iter().filter_map(|app| needs.get(*app)).flatten().collect();
    let free = |app: &AppName| !needed.contains(app);
    let any_free = apps.iter().any(|app| free(app));
    living.iter().filter(|one| !any_free || free(&one.spec.app)).map(|one| one.spec.id.clone()).collect()
}
