//! Effects carried out, each in a task of its own that reports back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::UnboundedSender;
use weal_control::cycle::{Done, Effect, Input, NotPlanned, PlanRequest, Planned};
use weal_engine::Engine;
use weal_model::{Action, PoolSpec};
use weal_protocol::Refusal;
use weal_protocol::engine::{ActionOutcome, JobOrder};
use weal_protocol::gateway::{self, GatewayConfig};
use weal_rpc::Client;

/// The gateway answers from memory; longer than this it is stuck or away.
const GATEWAY_TIMEOUT: Duration = Duration::from_secs(2);

/// What carries effects out.
pub(super) struct Hands<E> {
    engine: Arc<E>,
    gateway: Client,
    /// Where answers go. The loop ends before its tasks do when weal stops.
    answers: UnboundedSender<Input>,
}

impl<E: Engine> Hands<E> {
    pub fn new(engine: Arc<E>, gateway: &Client, answers: UnboundedSender<Input>) -> Self {
        Self { engine, gateway: gateway.with_timeout(GATEWAY_TIMEOUT), answers }
    }

    pub fn engine(&self) -> Arc<E> {
        Arc::clone(&self.engine)
    }

    /// Begins `effect`; what comes of it goes to the loop.
    pub fn perform(&self, effect: Effect) {
        let (engine, gateway) = (self.engine(), self.gateway.clone());
        match effect {
            Effect::ObserveGateway => self.answer(async move {
                Input::Gateway(gateway.call(gateway::OBSERVE, &()).await.map_err(|error| error.into_refusal(gateway::PEER)))
            }),
            Effect::ConfigureGateway(config) => self.answer(configure_gateway(gateway, config)),
            Effect::ObserveEngine => self.answer(async move { Input::Engine(engine.observe().await.map_err(Refusal::from)) }),
            Effect::ConfigureNodes(nodes) => {
                self.answer(async move { Input::Done(Done::Nodes(engine.configure(&nodes).await.map_err(Refusal::from))) })
            }
            Effect::Act { job: Some(order), .. } => {
                self.answer(async move { Input::Done(Done::Acted(act_on_job(&*engine, &order).await)) })
            }
            Effect::Act { pool, action, job: None } => {
                self.answer(async move { Input::Done(Done::Acted(act(&*engine, &pool, action).await)) })
            }
            Effect::Update { pool, starts } => {
                self.answer(async move { Input::Done(Done::Updated(engine.apply(&pool, &starts).await.map_err(Refusal::from))) })
            }
            Effect::SetCpuShares(shares) => self
                .answer(async move { Input::Done(Done::CpuShares(engine.set_cpu_shares(&shares).await.map_err(Refusal::from))) }),
            Effect::SetReserves(reserves) => self
                .answer(async move { Input::Done(Done::Reserves(engine.set_reserves(&reserves).await.map_err(Refusal::from))) }),
            Effect::Plan(request) => self.plan(request),
            // The driver's own.
            Effect::Keep(_) | Effect::Note(_) | Effect::Show { .. } => {}
        }
    }

    /// Has `answer` found, and handed to the loop.
    pub fn answer(&self, answer: impl Future<Output = Input> + Send + 'static) {
        let answers = self.answers.clone();
        tokio::spawn(async move {
            // The loop ends before its tasks do when weal stops.
            let _ = answers.send(answer.await);
        });
    }

    /// Plans on a thread of its own. A planner that panics is a plan that was not made, and no reason to stop deciding.
    fn plan(&self, request: Box<PlanRequest>) {
        self.answer(async move {
            let generation = request.snapshot.generation;
            let planned = tokio::task::spawn_blocking(move || {
                let begun = Instant::now();
                let planned = request.run();
                Planned { took_ms: begun.elapsed().as_secs_f64() * 1e3, ..planned }
            });
            let planned = planned.await.unwrap_or_else(|error| Planned {
                generation,
                took_ms: 0.0,
                result: Err(NotPlanned::Failed { detail: error.to_string() }),
            });
            Input::Done(Done::Planned(Box::new(planned)))
        });
    }
}

async fn act<E: Engine>(engine: &E, pool: &PoolSpec, action: Action) -> ActionOutcome {
    match engine.apply(pool, std::slice::from_ref(&action)).await {
        Ok(outcomes) => outcomes.into_iter().next().unwrap_or_else(|| {
            let refusal = Some(Refusal::failed("the engine did not say what became of it"));
            ActionOutcome { action, took_s: 0.0, refusal }
        }),
        Err(error) => ActionOutcome { action, took_s: 0.0, refusal: Some(error.into()) },
    }
}

async fn act_on_job<E: Engine>(engine: &E, order: &JobOrder) -> ActionOutcome {
    let failed =
        |error: weal_engine::Error| ActionOutcome { action: order.action.clone(), took_s: 0.0, refusal: Some(error.into()) };
    engine.apply_to_job(order).await.unwrap_or_else(failed)
}

async fn configure_gateway(gateway: Client, config: GatewayConfig) -> Input {
    let ack = gateway.call(gateway::CONFIGURE, &config).await;
    Input::Done(Done::Gateway(ack.map(|ack| ack.version).map_err(|error| error.into_refusal(gateway::PEER))))
}
