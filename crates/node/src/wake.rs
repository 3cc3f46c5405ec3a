//! Waking an application that is asked for: the only thing that the gateway may ask of an agent, on a socket of its own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::timeout_at;
use weal_model::{AppName, InstanceId, InstanceState, JUST_NAMED, Rung, wake_rank};
use weal_protocol::node::{self, WakeAnswer, WakeRequest};
use weal_protocol::{InstanceCommand, Refusal};
use weal_rpc::{Callers, Router, RpcRefusal};

use crate::agent::{Agent, no_instance};
use crate::instance::{Handle, Order, View};
use crate::ports::address;

/// The longest that a caller may wait.
const LONGEST_WAIT: Duration = Duration::from_secs(600);
/// How often an instance is looked at that starts: its own health checks are no denser.
const START_POLL: Duration = Duration::from_millis(10);

impl Agent {
    /// What the wake socket answers, to `callers`.
    pub fn wake_router(self: &Arc<Self>, callers: Callers) -> Router {
        let agent = Arc::clone(self);
        Router::new(callers).on(node::WAKE, move |request: WakeRequest| {
            let agent = Arc::clone(&agent);
            async move { agent.wake(request).await }
        })
    }

    async fn wake(self: Arc<Self>, request: WakeRequest) -> Result<WakeAnswer, RpcRefusal> {
        let wait = Duration::try_from_secs_f64(request.wait_s.max(0.0)).unwrap_or(LONGEST_WAIT).min(LONGEST_WAIT);
        let deadline = tokio::time::Instant::now() + wait;
        // Or whatever is asked for would be remembered.
        if self.instances_of(&request.app).is_empty() {
            return Err(nobody(&request.app, Vec::new()));
        }
        let turn = self.turn(&request.app);
        let late = || RpcRefusal {
            status: 504,
            message: format!("no instance of `{}` answers within {} s", request.app, request.wait_s),
            refusal: Some(Refusal::TimedOut { seconds: request.wait_s }),
        };
        // A caller that has left waits no longer: otherwise one that calls and leaves would fill the memory.
        let turn = timeout_at(deadline, turn.lock_owned()).await.map_err(|_| late())?;
        let (agent, WakeRequest { app, instances, .. }) = (Arc::clone(&self), request.clone());
        // In a task of its own: a wake that was begun is finished even if the caller dies.
        let waking = tokio::spawn(async move {
            let _turn = turn;
            let answer = timeout_at(deadline, agent.wake_one(&app, &instances)).await;
            if let Ok(Ok(answer)) = &answer {
                agent.note_asked(&answer.instance);
            }
            answer
        });
        waking.await.map_err(|error| RpcRefusal::internal(error.to_string()))?.map_err(|_| late())?
    }

    /// It was named to whoever asks for its application.
    fn note_asked(&self, instance: &InstanceId) {
        let mut asked = self.asked.lock().expect("nothing panics while it is held");
        asked.retain(|_, when| when.elapsed() < JUST_NAMED);
        asked.insert(instance.clone(), Instant::now());
    }

    /// Puts an instance to sleep, unless requests are on their way to it. From the order on it counts as asleep: named while it is
    /// still awake, it would freeze with the request in it. Who asks for its application meanwhile calls it back.
    pub(crate) async fn put_to_sleep(&self, instance: &InstanceId, rung: Rung) -> Result<(), Refusal> {
        let handle = self.find(instance).ok_or_else(|| no_instance(instance))?;
        let turn = self.turn(&handle.view().record.spec.app);
        let turn = turn.lock().await;
        let asked = self.asked.lock().expect("nothing panics while it is held").get(instance).map(Instant::elapsed);
        if let Some(ago) = asked.filter(|ago| *ago < JUST_NAMED) {
            return Err(Refusal::AskedFor { ago_s: ago.as_secs_f64() });
        }
        let ordered = handle.begin(Order::Sleep(rung)).await;
        drop(turn);
        ordered.outcome().await
    }

    /// One at a time wakes or puts to sleep an instance of `app`.
    fn turn(&self, app: &AppName) -> Arc<tokio::sync::Mutex<()>> {
        Arc::clone(self.waking.lock().expect("nothing panics while it is held").entry(app.clone()).or_default())
    }

    /// The cheapest that there is, or of `only` these: one that is awake, else the lightest sleeper, else the first that gets ready.
    async fn wake_one(&self, app: &AppName, only: &[InstanceId]) -> Result<WakeAnswer, RpcRefusal> {
        let mut failed = Vec::new();
        loop {
            let mut candidates: Vec<(Handle, View)> =
                self.instances_of(app).into_iter().map(|handle| (handle.clone(), handle.view())).collect();
            candidates.retain(|(_, view)| {
                let id = &view.record.spec.id;
                (only.is_empty() || only.contains(id)) && !failed.iter().any(|(failed, _)| failed == id)
            });
            candidates.sort_by(|(_, a), (_, b)| rank(a).partial_cmp(&rank(b)).unwrap_or(std::cmp::Ordering::Equal));
            let Some((handle, view)) = candidates.into_iter().next() else { return Err(nobody(app, failed)) };
            let answer = |took_s| WakeAnswer {
                instance: view.record.spec.id.clone(),
                address: address(view.record.port),
                took_s,
                listener: view.listener(),
            };
            match view.memory.state {
                InstanceState::Ready if view.stays_awake() => return Ok(answer(0.0)),
                // One that is falling asleep is woken as soon as it stands still, before all of it is paged out.
                state if state.is_asleep() || view.memory.wish.is_some() || view.bedtimes > 0 => {
                    let began = Instant::now();
                    match handle.order(Order::Resume).await {
                        Ok(()) => return Ok(answer(began.elapsed().as_secs_f64())),
                        Err(refusal) => failed.push((view.record.spec.id.clone(), refusal)),
                    }
                }
                InstanceState::Starting | InstanceState::Backoff | InstanceState::Unhealthy => {
                    tokio::time::sleep(START_POLL).await
                }
                state => {
                    let instance = view.record.spec.id.clone();
                    failed
                        .push((instance.clone(), Refusal::WrongState { instance, state, command: Some(InstanceCommand::Wake) }));
                }
            }
        }
    }
}

/// Among those of one rank who woke fastest.
fn rank(view: &View) -> (u8, f64) {
    (wake_rank(view.memory.state, view.stays_awake()), view.memory.last_wake_s.unwrap_or(f64::MAX))
}

fn nobody(app: &AppName, failed: Vec<(InstanceId, Refusal)>) -> RpcRefusal {
    RpcRefusal::refused(404, Refusal::NobodyToWake { app: app.clone(), failed })
}
