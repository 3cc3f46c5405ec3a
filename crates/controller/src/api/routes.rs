//! The table of routes.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::Response;
use axum::routing::{MethodRouter, delete, get, post, put};
use http::StatusCode;
use schemars::{Schema, SchemaGenerator};
use weal_model::{Event, HistorySample, JobStatus, ScheduleStatus, Status, Why, WhyRequest};

use super::access::{Access, Door, Guard, guard};
use super::answer::{BODY_LIMIT, refusal};
use super::rates::Rates;
use super::state::Api;
use super::{dashboard, handlers, jobs, keys, logs, stream};
use weal_protocol::controller::{
    ApiError, AppOrdered, AuditEntry, ConfigRefused, ConfigTaken, ConfigUpdate, ConfigVersion, ConfigView, JobForecast,
    JobSubmission, JobTaken, KeepAwakeOrder, NoteOrder, NoteTaken, PlanView, ScaleOrder, SleepOrder, SleepTaken, TokenMade,
    TokenOrder, TokenRevoked, TokenView, WakeTaken,
};
use weal_protocol::metrics::Metrics;

/// The longest that an answer may take to begin. A config waits for the disk and for the node agent.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// What an answer's body is.
pub(super) enum Content {
    Json(SchemaOf),
    Text(&'static str),
}

/// A parameter of a path or a query.
pub(super) struct Parameter {
    pub name: &'static str,
    pub place: &'static str,
    pub kind: &'static str,
    pub text: &'static str,
}

/// One route.
pub(super) struct Route {
    pub method: &'static str,
    pub path: &'static str,
    pub summary: &'static str,
    pub access: Access,
    pub parameters: Vec<Parameter>,
    pub body: Option<SchemaOf>,
    pub answers: Vec<(u16, &'static str, Content)>,
    handler: MethodRouter<Api>,
}

impl Route {
    fn get(path: &'static str, access: Access, summary: &'static str, content: Content, handler: MethodRouter<Api>) -> Self {
        let answers = vec![(200, summary, content)];
        Self { method: "get", path, summary, access, parameters: Vec::new(), body: None, answers, handler }
    }

    /// An order about one application.
    fn order(path: &'static str, summary: &'static str, taken: Content, handler: MethodRouter<Api>) -> Self {
        let answers = vec![(200, "It is begun.", taken), (409, "It cannot be done now, and why.", json::<ApiError>())];
        let (parameters, body) = (Vec::new(), None);
        let route = Self { method: "post", path, summary, access: Access::Order, parameters, body, answers, handler };
        route.path_parameter("app", "The application.")
    }

    /// An order about one job. It is answered when it is on disk.
    fn job_order(path: &'static str, summary: &'static str, handler: MethodRouter<Api>) -> Self {
        let answers = vec![
            (200, "It is written down and will be done.", json::<JobTaken>()),
            (404, "There is no such job.", json::<ApiError>()),
            (409, "Its state allows no such order, and why.", json::<ApiError>()),
        ];
        let (parameters, body) = (Vec::new(), None);
        let route = Self { method: "post", path, summary, access: Access::Jobs, parameters, body, answers, handler };
        route.path_parameter("job", "The job.")
    }

    fn path_parameter(mut self, name: &'static str, text: &'static str) -> Self {
        self.parameters.push(Parameter { name, place: "path", kind: "string", text });
        self
    }

    fn query(mut self, name: &'static str, kind: &'static str, text: &'static str) -> Self {
        self.parameters.push(Parameter { name, place: "query", kind, text });
        self
    }
}

fn json<T: schemars::JsonSchema>() -> Content {
    Content::Json(|generator| generator.subschema_for::<T>())
}

/// Every route that there is.
pub(super) fn routes() -> Vec<Route> {
    use Access::{Open, Order, Read};
    let put_config = Route {
        method: "put",
        path: "/v1/config",
        summary: "Take a config, as a whole or not at all.",
        access: Order,
        parameters: Vec::new(),
        body: Some(|generator| generator.subschema_for::<ConfigUpdate>()),
        answers: vec![
            (200, "It is in force, or would be.", json::<ConfigTaken>()),
            (422, "It has mistakes; the last good one stays in force.", json::<ConfigRefused>()),
        ],
        handler: put(handlers::put_config),
    };
    let mut all = vec![
        Route::get("/v1/status", Read, "The whole pool, now.", json::<Status>(), get(handlers::status)),
        Route::get(
            "/v1/apps/{app}/why",
            Read,
            "Why an application is as it is, in plain sentences.",
            json::<Why>(),
            get(handlers::why),
        )
        .path_parameter("app", "The application.")
        .query("node", "string", "Also say why it is on this node, or why not.")
        .query("refused", "integer", "Also list so many of its last requests that the gateway refused."),
        Route::get(
            "/v1/requests/{id}/why",
            Read,
            "Why the gateway refused a request, in plain sentences; it remembers the last few thousand.",
            json::<WhyRequest>(),
            get(handlers::why_request),
        )
        .path_parameter("id", "Its `x-request-id`."),
        Route::get(
            "/v1/apps/{app}/logs",
            Order,
            "What its instances have written, as lines by time; with the name of a job, what its runs have.",
            Content::Text("text/plain"),
            get(logs::logs),
        )
        .path_parameter("app", "The application.")
        .query("instance", "string", "Only this instance.")
        .query("tail", "integer", "How many lines before the end to begin; 100 when left out, with `since_ms` 100,000, the most.")
        .query("since_ms", "integer", "No line that came before, in milliseconds since 1970.")
        .query("json", "boolean", "Each line as an object with `time` (nanoseconds since 1970), `instance` and `line`.")
        .query("follow", "boolean", "Go on with what is written from now on."),
        Route::get("/v1/events", Read, "What happened, oldest first.", json::<Vec<Event>>(), get(handlers::events))
            .query("after", "integer", "Only events with a higher id; without it the newest ones.")
            .query("limit", "integer", "At most so many; 100 when left out, 1000 at most."),
        Route {
            method: "post",
            path: "/v1/events",
            summary: "Tell what the supervisor saw.",
            access: Order,
            parameters: Vec::new(),
            body: Some(|generator| generator.subschema_for::<NoteOrder>()),
            answers: vec![(200, "It is an event now.", json::<NoteTaken>()), (400, "It is too long.", json::<ApiError>())],
            handler: post(handlers::note),
        },
        Route::get(
            "/v1/stream",
            Read,
            "Server-sent events: `status` each flow cycle, `event` as they happen.",
            Content::Text("text/event-stream"),
            get(stream::stream),
        ),
        Route::get("/v1/config", Order, "The config in force.", json::<ConfigView>(), get(handlers::config))
            .query("after", "integer", "Wait while this is its generation.")
            .query("wait_s", "integer", "How many seconds to wait; none when left out, 25 at most."),
        put_config,
        Route::get(
            "/v1/configs",
            Order,
            "The configs that were in force, the newest first, without their texts.",
            json::<Vec<ConfigVersion>>(),
            get(handlers::configs),
        ),
        Route::get("/v1/configs/{generation}", Order, "One of them.", json::<ConfigVersion>(), get(handlers::config_of))
            .path_parameter("generation", "Its number."),
        Route {
            body: Some(|generator| generator.subschema_for::<SleepOrder>()),
            ..Route::order(
                "/v1/apps/{app}/sleep",
                "Let an application sleep until somebody asks for it.",
                json::<SleepTaken>(),
                post(handlers::sleep),
            )
        },
        Route::order("/v1/apps/{app}/wake", "Wake an application.", json::<WakeTaken>(), post(handlers::wake)),
        Route::get("/v1/plan", Read, "The last decisions and their reasons.", json::<PlanView>(), get(handlers::plan)),
        Route::get(
            "/v1/history",
            Read,
            "The past: one sample per flow cycle for an hour, then one per minute.",
            json::<Vec<HistorySample>>(),
            get(handlers::history),
        )
        .query("since_s", "number", "How many seconds back; 900 when left out."),
        Route::get(
            "/metrics",
            Read,
            "Metrics in the OpenMetrics text format, for Prometheus.",
            Content::Text("application/openmetrics-text"),
            get(handlers::metrics),
        ),
        Route::get("/v1/metrics", Read, "The same metrics as data.", json::<Metrics>(), get(handlers::metrics_as_data)),
        Route::get("/openapi.json", Read, "This document.", Content::Text("application/json"), get(handlers::openapi)),
        Route::get("/healthz", Open, "The controller answers.", Content::Text("text/plain"), get(handlers::healthz)),
        Route::get("/", Read, "The dashboard.", Content::Text("text/html"), get(dashboard::dashboard)),
    ];
    all.extend(verb_routes());
    all.extend(told_routes());
    all.extend(job_routes());
    all.extend(job_order_routes());
    all.extend(key_routes());
    all
}

/// Orders about one application.
fn verb_routes() -> Vec<Route> {
    let order = |path, summary, handler| Route::order(path, summary, json::<AppOrdered>(), handler);
    let scale = order("/v1/apps/{app}/scale", "Run so many instances of an application.", post(handlers::scale));
    let awake = order("/v1/apps/{app}/keep-awake", "Keep an application awake for a while.", post(handlers::keep_awake));
    vec![
        order("/v1/apps/{app}/restart", "Replace an application's instances one by one.", post(handlers::restart)),
        order("/v1/apps/{app}/stop", "Stop an application until somebody starts it.", post(handlers::stop)),
        order("/v1/apps/{app}/start", "Let an application run again.", post(handlers::start)),
        Route { body: Some(|generator| generator.subschema_for::<ScaleOrder>()), ..scale },
        Route { body: Some(|generator| generator.subschema_for::<KeepAwakeOrder>()), ..awake },
    ]
}

/// What somebody does to instances without the controller, which is told of it first.
fn told_routes() -> Vec<Route> {
    let told = |path, summary, handler| Route {
        answers: vec![
            (200, "It is in the audit log.", json::<NoteTaken>()),
            (404, "There is no such application.", json::<ApiError>()),
        ],
        ..Route::order(path, summary, json::<NoteTaken>(), handler)
    };
    vec![
        told(
            "/v1/apps/{app}/exec",
            "Tell that a command is about to be run beside an instance of an application.",
            post(handlers::exec),
        ),
        told(
            "/v1/apps/{app}/reload",
            "Tell that the instances of an application are about to get its reload signal.",
            post(handlers::reload),
        ),
    ]
}

/// Those about jobs.
fn job_routes() -> Vec<Route> {
    let submit = submit_route();
    let forecast = Route {
        path: "/v1/jobs/dry-run",
        summary: "Say what would become of a job and of others; nothing is run.",
        answers: vec![
            (200, "What is to be expected.", json::<JobForecast>()),
            (422, "It cannot be run here, and why.", json::<ApiError>()),
        ],
        handler: post(jobs::forecast),
        ..submit_route()
    };
    let list = Route::get(
        "/v1/jobs",
        Access::Jobs,
        "The jobs that are not over by number, then the last that are.",
        json::<Vec<JobStatus>>(),
        get(jobs::list),
    )
    .query("limit", "integer", "At most so many; 200 when left out, 10000 at most.")
    .query("all", "boolean", "Of those that are over all that the store has, not only the last few.");
    let output = Route::get(
        "/v1/jobs/{job}/output",
        Access::Jobs,
        "What a run of it has written, byte for byte.",
        Content::Text("application/octet-stream"),
        get(jobs::output),
    )
    .path_parameter("job", "The job.")
    .query("attempt", "integer", "Which run; the last one when left out.")
    .query("task", "integer", "Which task of it, from 0; the first when left out.")
    .query("tail", "integer", "How many lines before the end to begin; all that is kept when left out.")
    .query("follow", "boolean", "Go on with what is written until the run has ended.");
    let schedules = Route::get(
        "/v1/schedules",
        Access::Order,
        "The schedules of the config, and their next dates.",
        json::<Vec<ScheduleStatus>>(),
        get(jobs::schedules),
    );
    let show = Route::get("/v1/jobs/{job}", Access::Jobs, "One job.", json::<JobStatus>(), get(jobs::show));
    vec![submit, forecast, list, schedules, show.path_parameter("job", "The job."), output]
}

fn job_order_routes() -> Vec<Route> {
    vec![
        Route::job_order("/v1/jobs/{job}/cancel", "End a job.", post(jobs::cancel)),
        Route::job_order("/v1/jobs/{job}/pause", "Let a job stand still, with its memory.", post(jobs::pause)),
        Route::job_order("/v1/jobs/{job}/suspend", "Let a job stand still, and its image leave memory.", post(jobs::suspend)),
        Route::job_order("/v1/jobs/{job}/resume", "Let weal decide about a job again.", post(jobs::resume)),
        Route::job_order("/v1/jobs/{job}/requeue", "End a job's run and begin it anew.", post(jobs::requeue)),
    ]
}

fn submit_route() -> Route {
    Route {
        method: "post",
        path: "/v1/jobs",
        summary: "Run a job. It is answered when the job is on disk.",
        access: Access::Jobs,
        parameters: Vec::new(),
        body: Some(|generator| generator.subschema_for::<JobSubmission>()),
        answers: vec![
            (200, "It is on disk and will be run.", json::<JobTaken>()),
            (422, "It cannot be run here, and why.", json::<ApiError>()),
        ],
        handler: post(jobs::submit),
    }
}

/// Those about who may do what.
fn key_routes() -> Vec<Route> {
    let of_token = |method, path, summary, taken, handler| Route {
        method,
        path,
        summary,
        access: Access::Keys,
        parameters: Vec::new(),
        body: None,
        answers: vec![
            (200, "It is done.", taken),
            (404, "There is no such token.", json::<ApiError>()),
            (409, "It cannot be done, and why.", json::<ApiError>()),
        ],
        handler,
    };
    let create = Route {
        body: Some(|generator| generator.subschema_for::<TokenOrder>()),
        answers: vec![
            (200, "It is made; its secret is told this once.", json::<TokenMade>()),
            (409, "There is one of this name, or there are too many.", json::<ApiError>()),
            (400, "No token can be called so.", json::<ApiError>()),
        ],
        ..of_token("post", "/v1/tokens", "Make a token.", json::<TokenMade>(), post(keys::create))
    };
    let rotate =
        of_token("post", "/v1/tokens/{token}/rotate", "Give a token another secret.", json::<TokenMade>(), post(keys::rotate));
    let revoke = of_token("delete", "/v1/tokens/{token}", "End a token.", json::<TokenRevoked>(), delete(keys::revoke));
    vec![
        Route::get("/v1/tokens", Access::Keys, "The tokens there are.", json::<Vec<TokenView>>(), get(keys::tokens)),
        create,
        rotate.path_parameter("token", "Its name; `operator` for the one in controller/token."),
        revoke.path_parameter("token", "Its name."),
        Route::get(
            "/v1/audit",
            Access::Keys,
            "Who ordered what, and who was refused, oldest first.",
            json::<Vec<AuditEntry>>(),
            get(keys::audit),
        )
        .query("limit", "integer", "The last so many; 100 when left out, 10000 at most."),
    ]
}

/// The router behind `door`.
pub(crate) fn router(api: Api, door: &Door) -> Router {
    let mut router = Router::new();
    let rates = Arc::<Rates>::default();
    for route in routes() {
        let before = Guard { door: door.clone(), access: route.access, audit: Arc::clone(&api.audit), rates: Arc::clone(&rates) };
        let guarded = route.handler.layer(from_fn_with_state(before, guard));
        router = router.route(route.path, guarded);
    }
    router
        .fallback(|| async { refusal(StatusCode::NOT_FOUND, "there is no such path: GET /openapi.json lists them") })
        .method_not_allowed_fallback(|| async {
            refusal(StatusCode::METHOD_NOT_ALLOWED, "this path takes another method: GET /openapi.json lists them")
        })
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .layer(from_fn(in_time))
        .with_state(api)
}

async fn in_time(request: Request, next: Next) -> Response {
    match tokio::time::timeout(ANSWER_TIMEOUT, next.run(request)).await {
        Ok(response) => response,
        Err(_) => refusal(StatusCode::GATEWAY_TIMEOUT, format!("no answer within {} s", ANSWER_TIMEOUT.as_secs())),
    }
}
