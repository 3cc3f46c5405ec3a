//! Calls to the controller's API over its Unix socket: no token needed, the file's mode is the proof.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::{Method, Response, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use weal_model::{
    AppName, AppStatus, Event, InstanceId, InstanceState, InstanceStatus, JobStatus, Severity, Status, Why, WhyRequest,
};
use weal_protocol::controller::{
    AppOrdered, AppVerb, ConfigTaken, ConfigUpdate, ConfigVersion, ConfigView, JobForecast, JobSubmission, JobTaken,
    KeepAwakeOrder, LogLine, NoteOrder, NoteTaken, ScaleOrder, SleepOrder, SleepTaken, TokenMade, TokenOrder, TokenRevoked,
    WakeTaken,
};
use weal_protocol::metrics::Metrics;
use weal_rpc::http::{HttpClient, HttpError, read_body};

use crate::failure::{Exit, Failure};
use crate::found;
use crate::role_name::RoleName;
use crate::state::StateDir;

/// The longest line of an application that is shown beside its state, in characters.
const LONGEST_LINE: usize = 200;
/// So often an event is handed to a controller that does not answer, once a second.
const NOTE_ATTEMPTS: u32 = 60;
/// Of so many of an application's instances the last lines are asked for: they mostly say the same.
const MOST_LINES: usize = 3;

/// Calls one pool's controller.
#[derive(Debug, Clone)]
pub struct Client {
    http: HttpClient,
    timeout: Duration,
}

/// A refusal: `{error}`, for a config with its diagnostics.
#[derive(Debug, Default, Deserialize)]
struct Refusal {
    #[serde(default)]
    error: String,
    #[serde(default)]
    diagnostics: Vec<serde_json::Value>,
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nobody listens there.
    #[error("no pool runs here ({}): start it with weal up", .socket.display())]
    NotRunning {
        /// Where nobody listens.
        socket: PathBuf,
        /// What the system said.
        source: HttpError,
    },
    /// It broke off.
    #[error("the controller closed the connection before it had answered")]
    BrokeOff(#[source] HttpError),
    /// No answer in time.
    #[error("the controller gave no answer within {0:?}")]
    TimedOut(Duration),
    /// It said no.
    #[error("{message}")]
    Refused {
        /// HTTP status.
        status: StatusCode,
        /// Why.
        message: String,
        /// The config's diagnostics; may be empty.
        diagnostics: Vec<serde_json::Value>,
    },
    /// The exchange failed in another way.
    #[error("cannot ask the controller for {path}: {source}")]
    Exchange {
        /// What was asked.
        path: String,
        /// Why it failed.
        source: HttpError,
    },
    /// The answer cannot be read.
    #[error("the controller's answer to {path} cannot be read: {source}")]
    Unreadable {
        /// What was asked.
        path: String,
        /// What is wrong with it.
        source: serde_json::Error,
    },
}

impl Error {
    /// Whether another attempt may succeed because the controller was being started.
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::NotRunning { .. } | Self::BrokeOff(_) | Self::TimedOut(_))
    }

    /// As the failure of a command, with its exit code.
    pub fn into_failure(self) -> Failure {
        if let Self::NotRunning { socket, .. } = &self
            && let Some(failure) = of_running(socket)
        {
            return failure;
        }
        let exit = match &self {
            Self::NotRunning { .. } => Exit::NotRunning,
            Self::TimedOut(_) => Exit::TimedOut,
            Self::Refused { status, .. } if *status == StatusCode::UNPROCESSABLE_ENTITY => Exit::ConfigInvalid,
            Self::Refused { .. } | Self::BrokeOff(_) | Self::Exchange { .. } | Self::Unreadable { .. } => Exit::Failed,
        };
        let mut failure = Failure::new(exit, self.to_string());
        if let Self::Refused { diagnostics, .. } = self {
            failure.rendered = diagnostics.iter().filter_map(|one| one["rendered"].as_str()).collect();
            failure.diagnostics = diagnostics;
        }
        failure
    }
}

/// What is wrong where `socket` does not answer although the pool runs; `None` where none runs.
fn of_running(socket: &Path) -> Option<Failure> {
    let state = StateDir { root: socket.parent()?.parent()?.to_owned() };
    let pid = found::supervisor(&state)?.pid();
    let text = format!(
        "the pool runs as pid {pid}, and {} does not answer: if the state directory was removed, weal makes it again within a second",
        socket.display()
    );
    Some(Failure::new(Exit::Failed, text))
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        error.into_failure()
    }
}

impl Client {
    /// Calls the pool of `state`.
    pub fn new(state: &StateDir) -> Self {
        Self { http: HttpClient::new(state.socket(RoleName::Controller)), timeout: Duration::from_secs(15) }
    }

    /// The same with another time-out.
    pub fn with_timeout(&self, timeout: Duration) -> Self {
        Self { timeout, ..self.clone() }
    }

    /// The whole pool, now.
    pub async fn status(&self) -> Result<Status, Error> {
        self.get("/v1/status").await
    }

    /// Why `app` has what it has, why it is on `node` or not, and its last `refused` requests.
    pub async fn why(&self, app: &str, node: Option<&str>, refused: u32) -> Result<Why, Error> {
        let node = node.map_or_else(String::new, |node| format!("&node={}", escape(node)));
        let refused = if refused == 0 { String::new() } else { format!("&refused={refused}") };
        self.get(&format!("/v1/apps/{}/why?{}", escape(app), format!("{node}{refused}").trim_start_matches('&'))).await
    }

    /// Why the gateway refused a request.
    pub async fn why_request(&self, id: &str) -> Result<WhyRequest, Error> {
        self.get(&format!("/v1/requests/{}/why", escape(id))).await
    }

    /// At most `limit` events, oldest first: the first ones after the event `after`, or the newest of all.
    pub async fn events(&self, after: Option<u64>, limit: u32) -> Result<Vec<Event>, Error> {
        let after = after.map_or_else(String::new, |id| format!("after={id}&"));
        self.get(&format!("/v1/events?{after}limit={limit}")).await
    }

    /// The id of the newest event; 0 when there is none, or it cannot be asked for.
    pub async fn newest_event(&self) -> u64 {
        let newest = self.events(None, 1).await.unwrap_or_default();
        newest.iter().map(|event| event.id).max().unwrap_or(0)
    }

    /// Everything that is measured, now.
    pub async fn metrics(&self) -> Result<Metrics, Error> {
        self.get("/v1/metrics").await
    }

    /// The config in force.
    pub async fn config(&self) -> Result<ConfigView, Error> {
        self.get("/v1/config").await
    }

    /// The config in force once it is another than that of `generation`, or after `wait_s` seconds.
    pub async fn config_after(&self, generation: u64, wait_s: u64) -> Result<ConfigView, Error> {
        self.get(&format!("/v1/config?after={generation}&wait_s={wait_s}")).await
    }

    /// The versions that the controller keeps, the newest first, without their texts.
    pub async fn versions(&self) -> Result<Vec<ConfigVersion>, Error> {
        self.get("/v1/configs").await
    }

    /// One of them.
    pub async fn version(&self, generation: u64) -> Result<ConfigVersion, Error> {
        self.get(&format!("/v1/configs/{generation}")).await
    }

    /// Restarts, stops, starts or scales `app`, or keeps it awake.
    pub async fn order(&self, app: &str, verb: AppVerb) -> Result<AppOrdered, Error> {
        let (word, body) = match verb {
            AppVerb::Restart => ("restart", Vec::new()),
            AppVerb::Stop => ("stop", Vec::new()),
            AppVerb::Start => ("start", Vec::new()),
            AppVerb::Scale { instances } => ("scale", serde_json::to_vec(&ScaleOrder { instances }).expect("numbers are JSON")),
            AppVerb::KeepAwake { for_s } => {
                ("keep-awake", serde_json::to_vec(&KeepAwakeOrder { for_s }).expect("a number is JSON"))
            }
        };
        let path = format!("/v1/apps/{}/{word}", escape(app));
        self.timed(&path, self.call(Method::POST, &path, body)).await
    }

    /// Asks for another config.
    pub async fn put_config(&self, order: &ConfigUpdate) -> Result<ConfigTaken, Error> {
        let body = serde_json::to_vec(order).expect("strings and a flag are JSON");
        self.timed("/v1/config", self.call(Method::PUT, "/v1/config", body)).await
    }

    /// Tells the pool's events what the supervisor saw.
    pub async fn note(&self, note: &NoteOrder) -> Result<NoteTaken, Error> {
        let body = serde_json::to_vec(note).expect("words are JSON");
        self.timed("/v1/events", self.call(Method::POST, "/v1/events", body)).await
    }

    /// The same, tried again while the controller is being started.
    pub async fn note_until_taken(&self, severity: Severity, text: String) {
        let note = NoteOrder { severity, text };
        for _ in 0..NOTE_ATTEMPTS {
            match self.note(&note).await {
                Err(error) if error.is_passing() => tokio::time::sleep(Duration::from_secs(1)).await,
                _ => return,
            }
        }
    }

    /// Lets `app` sleep until somebody asks for it.
    pub async fn sleep(&self, app: &str, order: &SleepOrder) -> Result<SleepTaken, Error> {
        let path = format!("/v1/apps/{}/sleep", escape(app));
        let body = serde_json::to_vec(order).expect("a word is JSON");
        self.timed(&path, self.call(Method::POST, &path, body)).await
    }

    /// Lets the audit log say what is about to be done to instances of `app` from here: `exec` or `reload`.
    pub async fn note_done_here(&self, app: &str, what: &str) -> Result<NoteTaken, Error> {
        let path = format!("/v1/apps/{}/{what}", escape(app));
        self.timed(&path, self.call(Method::POST, &path, Vec::new())).await
    }

    /// Wakes `app`.
    pub async fn wake(&self, app: &str) -> Result<WakeTaken, Error> {
        let path = format!("/v1/apps/{}/wake", escape(app));
        self.timed(&path, self.call(Method::POST, &path, Vec::new())).await
    }

    /// Hands a job in.
    pub async fn submit(&self, submission: &JobSubmission) -> Result<JobTaken, Error> {
        let body = serde_json::to_vec(submission).expect("its keys are strings");
        self.timed("/v1/jobs", self.call(Method::POST, "/v1/jobs", body)).await
    }

    /// Asks what would become of a job.
    pub async fn forecast(&self, submission: &JobSubmission) -> Result<JobForecast, Error> {
        let body = serde_json::to_vec(submission).expect("its keys are strings");
        self.timed("/v1/jobs/dry-run", self.call(Method::POST, "/v1/jobs/dry-run", body)).await
    }

    /// How a job is.
    pub async fn job(&self, job: &str) -> Result<JobStatus, Error> {
        self.get(&format!("/v1/jobs/{}", escape(job))).await
    }

    /// The last `tail` lines that a job wrote.
    pub async fn job_output(&self, job: &str, tail: usize) -> Result<Bytes, Error> {
        let path = format!("/v1/jobs/{}/output?tail={tail}", escape(job));
        let call = self.call(Method::GET, &path, Vec::new());
        tokio::time::timeout(self.timeout, call).await.map_err(|_| Error::TimedOut(self.timeout))?
    }

    /// The last `tail` lines that the instances of `app` wrote, or one of them, by time.
    pub async fn log_lines(&self, app: &AppName, instance: Option<&InstanceId>, tail: u32) -> Result<Vec<LogLine>, Error> {
        let instance = instance.map_or_else(String::new, |instance| format!("&instance={}", escape(instance.as_str())));
        let path = format!("/v1/apps/{}/logs?json=true&tail={tail}{instance}", escape(app.as_str()));
        let call = self.call(Method::GET, &path, Vec::new());
        let body = tokio::time::timeout(self.timeout, call).await.map_err(|_| Error::TimedOut(self.timeout))??;
        // Another version's line that cannot be read is none.
        Ok(body.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect())
    }

    /// Gives an order about a job.
    pub async fn order_job(&self, job: &str, verb: &str) -> Result<JobTaken, Error> {
        let path = format!("/v1/jobs/{}/{verb}", escape(job));
        self.timed(&path, self.call(Method::POST, &path, Vec::new())).await
    }

    /// Makes a token.
    pub async fn create_token(&self, order: &TokenOrder) -> Result<TokenMade, Error> {
        let body = serde_json::to_vec(order).expect("its keys are strings");
        self.timed("/v1/tokens", self.call(Method::POST, "/v1/tokens", body)).await
    }

    /// Gives a token another secret.
    pub async fn rotate_token(&self, name: &str) -> Result<TokenMade, Error> {
        let path = format!("/v1/tokens/{}/rotate", escape(name));
        self.timed(&path, self.call(Method::POST, &path, Vec::new())).await
    }

    /// Ends a token.
    pub async fn revoke_token(&self, name: &str) -> Result<TokenRevoked, Error> {
        let path = format!("/v1/tokens/{}", escape(name));
        self.timed(&path, self.call(Method::DELETE, &path, Vec::new())).await
    }

    /// Asks `path` for JSON.
    pub async fn get<A: DeserializeOwned>(&self, path: &str) -> Result<A, Error> {
        self.timed(path, self.call(Method::GET, path, Vec::new())).await
    }

    /// Asks `path` for text and hands over each piece as it comes, without a time limit.
    pub async fn stream(&self, path: &str, mut each: impl FnMut(&[u8])) -> Result<(), Error> {
        let mut body = self.send(Method::GET, path, Vec::new()).await?.into_body();
        while let Some(frame) = body.frame().await {
            if let Some(data) = frame.map_err(|error| Error::BrokeOff(HttpError::BrokeOff(error)))?.data_ref() {
                each(data);
            }
        }
        Ok(())
    }

    /// The last `count` lines that are not blank of what `instance` wrote; none when it wrote nothing or cannot be asked. Only who may read
    /// logs may learn them, so no other answer holds them.
    async fn last_lines_of(&self, instance: &InstanceStatus, app: &AppName, count: usize) -> Vec<String> {
        // A shell ends what it says with an empty line now and then.
        let (tail, id) = (count + 4, escape(instance.id.as_str()));
        let path = format!("/v1/apps/{}/logs?tail={tail}&instance={id}", escape(app.as_str()));
        let asked = tokio::time::timeout(self.timeout, self.call(Method::GET, &path, Vec::new())).await;
        let text = asked.ok().and_then(Result::ok).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
        let last = lines[lines.len().saturating_sub(count)..].iter();
        last.map(|line| line.chars().take(LONGEST_LINE).collect()).collect()
    }

    /// The last `count` lines of each instance of `app` that does not do as it should.
    pub async fn last_lines(&self, app: &AppStatus, count: usize) -> Vec<(InstanceId, Vec<String>)> {
        let is_failing = |state| matches!(state, InstanceState::Failed | InstanceState::Backoff | InstanceState::Unhealthy);
        let mut lines = Vec::new();
        // One that is being started again has failed before.
        let again = |instance: &&InstanceStatus| instance.state == InstanceState::Starting && instance.restarts > 0;
        let failing = app.instances.iter().filter(|instance| is_failing(instance.state) || again(instance));
        for instance in failing.take(MOST_LINES) {
            lines.push((instance.id.clone(), self.last_lines_of(instance, &app.name, count).await));
        }
        lines
    }

    async fn timed<A: DeserializeOwned>(&self, path: &str, call: impl Future<Output = Result<Bytes, Error>>) -> Result<A, Error> {
        let body = tokio::time::timeout(self.timeout, call).await.map_err(|_| Error::TimedOut(self.timeout))??;
        serde_json::from_slice(&body).map_err(|source| Error::Unreadable { path: path.to_owned(), source })
    }

    async fn call(&self, method: Method, path: &str, body: Vec<u8>) -> Result<Bytes, Error> {
        let response = self.send(method, path, body).await?;
        read_body(response).await.map_err(|error| self.explain(path, error))
    }

    /// # Errors
    /// The exchange failed, or the controller refuses.
    async fn send(&self, method: Method, path: &str, body: Vec<u8>) -> Result<Response<Incoming>, Error> {
        let response = self.http.send(method, path, body).await.map_err(|error| self.explain(path, error))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let body = read_body(response).await.map_err(|error| self.explain(path, error))?;
        let refusal: Refusal = serde_json::from_slice(&body).unwrap_or_default();
        let message = if refusal.error.is_empty() { format!("the controller answered {status}") } else { refusal.error };
        Err(Error::Refused { status, message, diagnostics: refusal.diagnostics })
    }

    fn explain(&self, path: &str, error: HttpError) -> Error {
        match error {
            HttpError::Connect(_) => Error::NotRunning { socket: self.http.socket().to_owned(), source: error },
            HttpError::BrokeOff(_) => Error::BrokeOff(error),
            HttpError::Path { .. } | HttpError::TooLarge | HttpError::Body(_) => {
                Error::Exchange { path: path.to_owned(), source: error }
            }
        }
    }
}

/// Percent-encodes what is not plain in a path segment or a query value.
pub fn escape(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

/// Runs a command's calls.
pub fn block_on<T>(future: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start the runtime")?;
    runtime.block_on(future)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_in_paths() {
        assert_eq!(escape("a/b c"), "a%2Fb%20c");
    }

    #[tokio::test]
    async fn nobody_there_is_not_running() {
        let client = Client::new(&StateDir { root: "/nowhere".into() });
        assert_eq!(client.status().await.unwrap_err().into_failure().exit, Exit::NotRunning);
    }
}
