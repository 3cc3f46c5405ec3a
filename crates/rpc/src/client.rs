//! Making calls.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use weal_protocol::Method;

use crate::error::Error;
use crate::fault::RpcRefusal;
use crate::http::{HttpClient, HttpError, read_body};

/// Calls one role.
#[derive(Debug, Clone)]
pub struct Client {
    http: HttpClient,
    timeout: Duration,
}

impl Client {
    /// Calls the role that listens at `socket`, waiting at most `timeout` for an answer.
    pub fn new(socket: impl Into<PathBuf>, timeout: Duration) -> Self {
        Self { http: HttpClient::new(socket), timeout }
    }

    /// The same with another time-out.
    pub fn with_timeout(&self, timeout: Duration) -> Self {
        Self { http: self.http.clone(), timeout }
    }

    /// Where it calls.
    pub fn socket(&self) -> &Path {
        self.http.socket()
    }

    /// Calls `method`.
    pub async fn call<Q: Serialize, A: DeserializeOwned>(&self, method: Method<Q, A>, request: &Q) -> Result<A, Error> {
        let exchange = self.exchange(method.name(), request);
        match tokio::time::timeout(self.timeout, exchange).await {
            Ok(result) => result,
            Err(_) => Err(Error::TimedOut {
                socket: self.socket().display().to_string(),
                method: method.name(),
                seconds: self.timeout.as_secs_f64(),
            }),
        }
    }

    async fn exchange<Q: Serialize, A: DeserializeOwned>(&self, method: &'static str, request: &Q) -> Result<A, Error> {
        let unreachable = |source: HttpError| Error::Unreachable { socket: self.socket().display().to_string(), source };
        let body = serde_json::to_vec(request).map_err(|source| Error::Unwritable { method, source })?;
        let response = self.http.send(http::Method::POST, &format!("/{method}"), body).await.map_err(unreachable)?;
        let status = response.status();
        let body = read_body(response).await.map_err(unreachable)?;
        if status.is_success() {
            return serde_json::from_slice(&body).map_err(|source| Error::Unreadable { method, source });
        }
        let unread =
            |_| RpcRefusal { status: status.as_u16(), message: String::from_utf8_lossy(&body).into_owned(), refusal: None };
        Err(Error::Refused { method, fault: serde_json::from_slice(&body).unwrap_or_else(unread) })
    }
}

#[cfg(test)]
mod tests {
    use weal_protocol::Refusal;

    use super::*;
    use crate::callers::Callers;
    use crate::server::{Router, serve};

    const DOUBLE: Method<u32, u32> = Method::new("test.v1/double");

    /// A role that listens below `folder`, and a client for it. The path is longer than a socket's address.
    fn role(folder: &Path, router: Router) -> Client {
        let long = folder.join("x".repeat(120));
        std::fs::create_dir(&long).unwrap();
        let path = long.join("role.sock");
        let listener = tokio::net::UnixListener::from_std(crate::bind(&path).unwrap()).unwrap();
        tokio::spawn(serve(listener, router));
        Client::new(path, Duration::from_secs(5))
    }

    fn doubles() -> Router {
        Router::new(Callers::own()).on(DOUBLE, |n: u32| async move {
            match n {
                1_000_001.. => Err(RpcRefusal::bad_request("too large")),
                13 => Err(RpcRefusal::refused(409, Refusal::AskedFor { ago_s: 0.5 })),
                n => Ok(n * 2),
            }
        })
    }

    #[tokio::test]
    async fn a_call_comes_back_and_a_refusal_says_why() {
        let folder = tempfile::tempdir().unwrap();
        let client = role(folder.path(), doubles());
        assert_eq!(client.call(DOUBLE, &21).await.unwrap(), 42);
        let error = client.call(DOUBLE, &u32::MAX).await.unwrap_err();
        assert_eq!((error.to_string().as_str(), error.refusal()), ("test.v1/double: too large", None));
        let error = client.call(DOUBLE, &13).await.unwrap_err();
        assert_eq!(error.to_string(), "test.v1/double: a request asked for it 0.500 s ago");
        assert_eq!(error.refusal(), Some(&Refusal::AskedFor { ago_s: 0.5 }));
    }

    /// What is refused to this process, by the user that the kernel names; `None` when it is answered.
    async fn refused(callers: Callers, method: Method<u32, u32>) -> Option<Refusal> {
        let folder = tempfile::tempdir().unwrap();
        let router = Router::new(callers).on(DOUBLE, |n: u32| async move { Ok(n * 2) });
        let result = role(folder.path(), router).call(method, &1).await;
        result.err().map(|error| error.refusal().expect("a refusal with a type").clone())
    }

    #[tokio::test]
    async fn a_user_that_a_method_does_not_name_is_refused_and_learns_nothing_of_other_methods() {
        let own = rustix::process::geteuid().as_raw();
        let stranger = own + 1;
        let may_not = |method: &str| Some(Refusal::CallerNotAllowed { uid: own, method: method.to_owned() });
        assert_eq!(refused(Callers::of([own]), DOUBLE).await, None);
        assert_eq!(refused(Callers::of([stranger]), DOUBLE).await, may_not("test.v1/double"));
        assert_eq!(refused(Callers::of([stranger]).and(own), DOUBLE).await, None);
        const OTHER: Method<u32, u32> = Method::new("test.v1/halve");
        assert_eq!(refused(Callers::of([stranger]), OTHER).await, may_not("test.v1/halve"));
        let unknown = Refusal::UnknownMethod { method: "test.v1/halve".to_owned(), speaks: None };
        assert_eq!(refused(Callers::of([own]), OTHER).await, Some(unknown));
    }

    #[tokio::test]
    async fn each_method_has_callers_of_its_own() {
        let (folder, own) = (tempfile::tempdir().unwrap(), rustix::process::geteuid().as_raw());
        const TRIPLE: Method<u32, u32> = Method::new("test.v1/triple");
        let router = Router::new(Callers::of([own + 1])).on(DOUBLE, |n: u32| async move { Ok(n * 2) });
        let router = router.callers(Callers::of([own])).on(TRIPLE, |n: u32| async move { Ok(n * 3) });
        let client = role(folder.path(), router);
        assert_eq!(client.call(TRIPLE, &2).await.unwrap(), 6);
        let error = client.call(DOUBLE, &2).await.unwrap_err();
        assert_eq!(error.to_string(), format!("test.v1/double: user {own} may not call test.v1/double"));
    }

    #[tokio::test]
    async fn a_role_of_another_version_is_refused_with_a_sentence_that_names_both() {
        let folder = tempfile::tempdir().unwrap();
        let client = role(folder.path(), doubles());
        const LATER: Method<u32, u32> = Method::new("test.v2/double");
        let error = client.call(LATER, &1).await.unwrap_err();
        let sentence =
            "unknown method test.v2/double: this role speaks test.v1/double, so the two run different versions of weal";
        assert_eq!(error.to_string(), format!("test.v2/double: {sentence}"));
        assert!(matches!(&error, Error::Refused { fault, .. } if fault.status == 404), "{error:?}");
        let speaks = Some("test.v1/double".to_owned());
        assert_eq!(error.refusal(), Some(&Refusal::UnknownMethod { method: "test.v2/double".to_owned(), speaks }));
        const NEW: Method<(), ()> = Method::new("test.v1/halve");
        let error = client.call(NEW, &()).await.unwrap_err().to_string();
        assert!(error.ends_with("unknown method test.v1/halve: this role may run another version of weal"), "{error}");
    }

    #[tokio::test]
    async fn a_role_that_knows_fewer_or_more_fields_is_understood() {
        #[derive(Debug, PartialEq, Serialize, serde::Deserialize)]
        struct Before {
            count: u32,
        }
        #[derive(Debug, PartialEq, Serialize, serde::Deserialize)]
        struct Now {
            count: u32,
            #[serde(default)]
            unit: Option<String>,
        }
        const OF_BEFORE: Method<Before, Before> = Method::new("test.v1/count");
        const OF_NOW: Method<Now, Now> = Method::new("test.v1/count");
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let before = role(folders[0].path(), Router::new(Callers::own()).on(OF_BEFORE, |asked: Before| async { Ok(asked) }));
        let now = role(folders[1].path(), Router::new(Callers::own()).on(OF_NOW, |asked: Now| async { Ok(asked) }));
        assert_eq!(now.call(OF_BEFORE, &Before { count: 3 }).await.unwrap(), Before { count: 3 });
        let asked = Now { count: 3, unit: Some("seats".to_owned()) };
        assert_eq!(before.call(OF_NOW, &asked).await.unwrap(), Now { count: 3, unit: None });
    }

    #[tokio::test]
    async fn nobody_there_is_said_with_the_path() {
        let client = Client::new("/nowhere/role.sock", Duration::from_secs(5));
        let error = client.call(DOUBLE, &1).await.unwrap_err().to_string();
        assert!(error.starts_with("/nowhere/role.sock does not answer"), "{error}");
    }
}
