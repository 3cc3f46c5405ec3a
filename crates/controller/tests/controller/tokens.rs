//! What a token of each scope opens.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use weal_model::{JobPhase, JobStatus, RunEnd, Status};
use weal_protocol::controller::{ApiError, JobTaken, TokenMade};
use weal_protocol::engine::RunState;

use crate::fake::{DEADLINE, Pool};
use crate::jobs::{pool, until};

/// What each route takes over TCP: nothing, or a token that has at least this scope. A new route has to be entered here.
const ROUTES: [(&str, &[&str]); 5] = [
    ("", &["get /healthz"]),
    (
        "read",
        &[
            "get /",
            "get /metrics",
            "get /openapi.json",
            "get /v1/apps/{app}/why",
            "get /v1/events",
            "get /v1/history",
            "get /v1/metrics",
            "get /v1/plan",
            "get /v1/requests/{id}/why",
            "get /v1/status",
            "get /v1/stream",
        ],
    ),
    (
        "jobs",
        &[
            "get /v1/jobs",
            "get /v1/jobs/{job}",
            "get /v1/jobs/{job}/output",
            "post /v1/jobs",
            "post /v1/jobs/dry-run",
            "post /v1/jobs/{job}/cancel",
            "post /v1/jobs/{job}/pause",
            "post /v1/jobs/{job}/requeue",
            "post /v1/jobs/{job}/resume",
            "post /v1/jobs/{job}/suspend",
        ],
    ),
    (
        "all",
        &[
            "get /v1/apps/{app}/logs",
            "get /v1/config",
            "get /v1/configs",
            "get /v1/configs/{generation}",
            "get /v1/schedules",
            "post /v1/apps/{app}/exec",
            "post /v1/apps/{app}/keep-awake",
            "post /v1/apps/{app}/reload",
            "post /v1/apps/{app}/restart",
            "post /v1/apps/{app}/scale",
            "post /v1/apps/{app}/sleep",
            "post /v1/apps/{app}/start",
            "post /v1/apps/{app}/stop",
            "post /v1/apps/{app}/wake",
            "post /v1/events",
            "put /v1/config",
        ],
    ),
    (
        "operator",
        &["delete /v1/tokens/{token}", "get /v1/audit", "get /v1/tokens", "post /v1/tokens", "post /v1/tokens/{token}/rotate"],
    ),
];

/// The routes of the API's document, each with the scope that it names.
fn documented() -> Vec<(String, String)> {
    let document = weal_controller::openapi();
    let mut found = Vec::new();
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let named = operation["security"].as_array().unwrap().iter().find_map(|one| one["token"][0].as_str());
            found.push((named.unwrap_or_default().to_owned(), format!("{method} {path}")));
        }
    }
    found.sort();
    found
}

async fn token(pool: &Pool, order: Value) -> String {
    let (status, body) = pool.local("POST", "/v1/tokens", order.to_string()).await;
    assert_eq!(status, 200, "{body}");
    format!("Bearer {}", serde_json::from_str::<TokenMade>(&body).unwrap().secret)
}

/// The status of an answer, of which no more is read: the stream never ends.
async fn status(pool: &Pool, method: &str, path: &str, token: &str) -> u16 {
    let path = ["app", "shop", "id", "x", "job", "no-9", "generation", "1", "token", "nobody"]
        .chunks(2)
        .fold(path.to_owned(), |path, pair| path.replace(&format!("{{{}}}", pair[0]), pair[1]));
    let mut stream = tokio::net::TcpStream::connect(pool.api).await.unwrap();
    let head = format!(
        "{} {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: {token}\r\ncontent-length: 2\r\n\r\n{{}}",
        method.to_uppercase()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut line = [0; 12];
    tokio::time::timeout(DEADLINE, stream.read_exact(&mut line)).await.expect("an answer").unwrap();
    std::str::from_utf8(&line[9..]).unwrap().parse().unwrap()
}

#[tokio::test]
async fn every_route_takes_the_scope_that_the_table_says() {
    let mut expected: Vec<(String, String)> = Vec::new();
    for (scope, routes) in ROUTES {
        expected.extend(routes.iter().map(|route| (scope.to_owned(), (*route).to_owned())));
    }
    expected.sort();
    assert_eq!(documented(), expected);

    let pool = pool().await;
    let scopes = ["read", "jobs", "all", "operator"];
    for (number, scope) in scopes[..3].iter().enumerate() {
        let token = token(&pool, json!({ "name": scope, "scope": scope })).await;
        for (needed, routes) in ROUTES {
            let is_open = needed.is_empty() || scopes[..=number].contains(&needed);
            for route in routes {
                let (method, path) = route.split_once(' ').unwrap();
                let answered = status(&pool, method, path, &token).await;
                assert_eq!(answered != 403, is_open, "a token of the scope {scope} at {route}: {answered}");
                assert_ne!(answered, 401, "{route}");
            }
        }
    }
}

#[tokio::test]
async fn a_token_calls_no_faster_than_it_may() {
    let pool = pool().await;
    let greedy = token(&pool, json!({ "name": "greedy", "scope": "jobs" })).await;
    let stream = tokio::net::TcpStream::connect(pool.api).await.unwrap();
    let (mut reader, mut writer) = stream.into_split();
    let head = |more: &str| format!("GET /v1/jobs/no-9 HTTP/1.1\r\nhost: localhost\r\nauthorization: {greedy}\r\n{more}\r\n");
    // All at once: faster than it may as soon as the machine answers more than that.
    let flood = head("").repeat(5000) + &head("connection: close\r\n");
    let flood = tokio::spawn(async move { writer.write_all(flood.as_bytes()).await });
    let mut said = String::new();
    tokio::time::timeout(10 * DEADLINE, reader.read_to_string(&mut said)).await.expect("all answers").unwrap();
    flood.await.unwrap().unwrap();
    let said = said.to_ascii_lowercase();
    let answers = |status: &str| said.matches(&format!("http/1.1 {status}")).count();
    assert_eq!(answers("404") + answers("429"), answers(""), "nothing else is answered");
    assert!(
        answers("") >= 1000 && answers("429") > 0 && said.contains("retry-after: 1\r\n"),
        "{} were let through",
        answers("404")
    );
    let other = token(&pool, json!({ "name": "other", "scope": "jobs" })).await;
    assert_eq!(status(&pool, "GET", "/v1/jobs/no-9", &other).await, 404, "another's calls are not counted");
}

#[tokio::test]
async fn a_token_with_a_quota_changes_nothing_but_jobs() {
    let pool = pool().await;
    let ci = token(&pool, json!({ "name": "ci", "quota": { "jobs": 5 } })).await;
    let update = json!({ "text": crate::fake::CONFIG, "path": "weal.toml" }).to_string();
    let (status, body) = pool.tcp("PUT", "/v1/config", &[("authorization", &ci)], update.clone()).await;
    let error = serde_json::from_str::<ApiError>(&body).unwrap().error;
    assert_eq!((status, error.as_str()), (403, "the token `ci` lets its holder submit jobs and order these, and nothing else"));
    assert_eq!(pool.tcp("GET", "/v1/status", &[("authorization", &ci)], "").await.0, 200);
    // As callers asked for a token before there were scopes.
    let former = token(&pool, json!({ "name": "former", "rights": "order", "quota": { "jobs": 5 } })).await;
    assert_eq!(pool.tcp("PUT", "/v1/config", &[("authorization", &former)], update).await.0, 200);
}

/// One call about jobs by a token.
async fn call(pool: &Pool, token: &str, method: &str, path: &str, body: &str) -> (u16, String) {
    pool.tcp(method, path, &[("authorization", token)], body.to_owned()).await
}

async fn submit_job(pool: &Pool, token: &str, extra: Value) -> String {
    let mut body = json!({ "run": ["work"], "done_within_s": 600.0, "memory": 1 << 20 });
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    let (status, text) = call(pool, token, "POST", "/v1/jobs", &body.to_string()).await;
    assert_eq!(status, 200, "{text}");
    serde_json::from_str::<JobTaken>(&text).unwrap().job.id.to_string()
}

async fn listed(pool: &Pool, token: &str, query: &str) -> Vec<String> {
    let (status, text) = call(pool, token, "GET", &format!("/v1/jobs{query}"), "").await;
    assert_eq!(status, 200, "{text}");
    let jobs: Vec<JobStatus> = serde_json::from_str(&text).unwrap();
    jobs.into_iter().map(|job| job.id.to_string()).collect()
}

fn end(pool: &Pool, job: &str) {
    pool.engine.lock().set_run(&job.into(), RunState::Ended, Some(RunEnd::Code { code: 0 }));
}

#[tokio::test]
async fn the_holder_of_a_token_for_jobs_reaches_its_own_jobs_and_no_others() {
    let pool = pool().await;
    let ci = token(&pool, json!({ "name": "ci", "scope": "jobs" })).await;
    let other = token(&pool, json!({ "name": "other", "scope": "jobs" })).await;
    let all = token(&pool, json!({ "name": "all", "scope": "all" })).await;
    let mine = submit_job(&pool, &ci, json!({ "key": "monday" })).await;
    let parts = submit_job(&pool, &other, json!({ "key": "monday", "array": { "first": 1, "last": 2 } })).await;
    assert_eq!((mine.as_str(), parts.as_str()), ("work-1", "work-2.1"), "one key of two tokens is two jobs");
    assert_eq!(submit_job(&pool, &ci, json!({ "key": "monday" })).await, mine);
    assert_eq!(listed(&pool, &ci, "").await, ["work-1"]);
    assert_eq!(listed(&pool, &other, "").await, ["work-2.1", "work-2.2"]);
    assert_eq!(listed(&pool, &all, "").await.len(), 3);
    let (_, status) = call(&pool, &ci, "GET", "/v1/status", "").await;
    let status: Status = serde_json::from_str(&status).unwrap();
    assert_eq!(status.jobs.len(), 3, "that there are others is no secret");
    let told = status.jobs.iter().filter(|job| !job.command.is_empty() || job.submitter.is_some());
    assert_eq!(told.count(), 0, "the status says neither their commands nor who handed them in");

    for (method, path) in [
        ("GET", "/v1/jobs/work-2.1"),
        ("GET", "/v1/jobs/work-2.1/output"),
        ("POST", "/v1/jobs/work-2.1/cancel"),
        ("POST", "/v1/jobs/work-2/pause"),
        ("POST", "/v1/jobs/work-2.2/requeue"),
    ] {
        let (status, text) = call(&pool, &ci, method, path, "").await;
        assert!(status == 403 && text.contains("reaches only jobs that were submitted with it"), "{method} {path}: {text}");
    }
    assert_eq!(call(&pool, &ci, "GET", "/v1/jobs/no-9", "").await.0, 404);
    assert_eq!(call(&pool, &ci, "GET", "/v1/jobs/work-1", "").await.0, 200);
    assert_eq!(call(&pool, &all, "POST", "/v1/jobs/work-2.2/cancel", "").await.0, 200);
    until(&pool, "work-2.2", JobPhase::Cancelled).await;

    until(&pool, &parts, JobPhase::Running).await;
    end(&pool, &parts);
    until(&pool, &parts, JobPhase::Done).await;
    assert_eq!(call(&pool, &ci, "POST", "/v1/jobs/work-2.1/requeue", "").await.0, 403, "also once it is over");
    assert_eq!(call(&pool, &ci, "GET", "/v1/jobs/work-2.1", "").await.0, 403);
    assert_eq!(listed(&pool, &ci, "?all=true").await, ["work-1"]);
    assert_eq!(listed(&pool, &other, "?all=true&limit=1").await.len(), 1);
    assert_eq!(listed(&pool, &all, "?all=true").await.len(), 3);
}

#[tokio::test]
async fn jobs_that_are_run_again_count_against_the_quota_of_their_token() {
    let pool = pool().await;
    let ci = token(&pool, json!({ "name": "ci", "quota": { "jobs": 1 } })).await;
    let first = submit_job(&pool, &ci, json!({})).await;
    until(&pool, &first, JobPhase::Running).await;
    end(&pool, &first);
    until(&pool, &first, JobPhase::Done).await;
    let second = submit_job(&pool, &ci, json!({})).await;
    let again = format!("/v1/jobs/{first}/requeue");
    let (status, text) = call(&pool, &ci, "POST", &again, "").await;
    assert!(status == 429 && text.contains("`max-jobs = 1`: its open jobs take 1, and this asks for 1"), "{text}");
    until(&pool, &second, JobPhase::Running).await;
    assert_eq!(call(&pool, &ci, "POST", &format!("/v1/jobs/{second}/requeue"), "").await.0, 200, "it counts already");
    assert_eq!(pool.local("POST", &again, "").await.0, 200, "whoever runs weal is not bounded");
}
