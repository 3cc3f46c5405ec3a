//! What happens between a request and its response: interim responses, and the word that its client waits for.

use std::future::Future as _;
use std::pin::Pin;
use std::task::Context;
use std::time::Duration;

use http::StatusCode;
use http::header::HeaderMap;
use tokio::time::Sleep;

use super::interim::{Interim, Interims};
use super::request_body::Upload;
use crate::listen::client::Client;
use crate::upstream::attempt::Meanwhile;

/// How long a client that waits to be told to go on waits for the instance to say so. Instances that do not know `Expect` never say it.
pub(super) const EXPECT_WAIT: Duration = Duration::from_secs(1);

/// What is done between a request and its response.
pub(super) struct Between<'a> {
    pub client: &'a Client,
    pub interims: Option<&'a Interims>,
    /// A body that waits until its client is told to go on.
    pub upload: Option<&'a Upload>,
    /// How long it waits for the instance.
    pub wait: Option<Pin<Box<Sleep>>>,
    pub expects: bool,
    pub takes_interim: bool,
}

impl Meanwhile for Between<'_> {
    fn handle_interim(&mut self, interim: Interim) {
        if interim.status == StatusCode::CONTINUE && self.expects {
            // The client is told to go on when its body is read; where that was done before, it is not told twice.
            self.wait = None;
        } else if let Some(interims) = self.interims {
            interims.push(interim);
        } else if self.takes_interim {
            self.client.push_interim(&interim.write());
        }
    }

    fn poll_change(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(upload) = self.upload else { return false };
        if self.wait.as_mut().is_some_and(|wait| wait.as_mut().poll(cx).is_pending()) {
            return false;
        }
        upload.release();
        if let Some(interims) = self.interims {
            // Over HTTP/1, hyper says this as it reads the body.
            interims.push(Interim::new(StatusCode::CONTINUE, HeaderMap::new()));
        }
        self.upload = None;
        true
    }
}
