//! Bodies that come before their requests take seats.
//!
//! A seat is a right to be at an instance, and a client that sends its body a byte at a time would hold it for as long as it likes. So
//! requests whose bodies are still to come have half of the seats at most ([`weal_control::admission`]). A request beyond that waits here,
//! without a seat, until its body has come: all of it, or as much as the gateway has room for. Then it waits for its turn among those. While
//! it waits, and also later, a body that comes too slowly ends its request ([`crate::listen::pace`]).

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use http::header::HeaderMap;
use weal_model::Time;

use super::error_response::ErrorResponse;
use super::exchange::Exchange;
use super::interim::Interim;
use super::request_body::{Ahead, Upload};
use crate::routing::cluster::Cluster;
use crate::upstream::attempt::{SENDABLE, Sendable};

impl Exchange {
    /// Waits until a request may arrive whose body has not come.
    pub(super) async fn gather(
        &self,
        upload: &Upload,
        sendable: &mut Sendable,
        cluster: &Arc<Cluster>,
        end: Option<Time>,
    ) -> Result<(), ErrorResponse> {
        if let Some(share) = cluster.begin_upload(false, self.counted) {
            upload.hold(share);
            return Ok(());
        }
        let Ok(_permit) = self.session.gateway.gathers.try_acquire() else { return Err(ErrorResponse::too_many_bodies()) };
        self.tell_to_go_on(upload);
        let longest = self.at_most(Duration::MAX, end);
        let body = sendable.as_mut().expect(SENDABLE).request.body_mut();
        let room = self.session.gateway.limits.gathered_bytes;
        let read = tokio::time::timeout(longest.min(LONGEST), std::future::poll_fn(|cx| body.poll_ahead(cx, room))).await;
        match read.map_err(|_| ErrorResponse::stalled(longest))? {
            Ahead::All => Ok(()),
            Ahead::Broken => Err(self.broken_upload()),
            Ahead::Full => {
                let timeout = self.at_most(cluster.request_timeout(), end);
                let turn = tokio::time::timeout(timeout.min(LONGEST), cluster.upload_turn(self.counted)).await;
                upload.hold(turn.map_err(|_| ErrorResponse::no_seat_for_body(timeout))?);
                Ok(())
            }
        }
    }

    /// The client need not wait for the instance's word. Over HTTP/1, hyper says so as it reads the body.
    fn tell_to_go_on(&self, upload: &Upload) {
        if upload.is_held() {
            upload.release();
            self.interims.iter().for_each(|interims| interims.push(Interim::new(StatusCode::CONTINUE, HeaderMap::new())));
        }
    }
}

/// Nothing is waited for longer than a day: a timer has its limits.
pub(super) const LONGEST: Duration = Duration::from_secs(24 * 3600);
