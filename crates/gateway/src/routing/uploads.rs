//! Requests whose bodies have not all come, and how many of them a cluster lets go on.

use std::sync::Arc;

use super::cluster::Cluster;
use crate::http::request_body::Share;

/// A request's part of the seats that may wait for bodies, until this is dropped.
#[derive(Debug)]
pub(crate) struct UploadShare(Arc<Cluster>);

impl Cluster {
    /// Lets a request go on whose body has not all come; `None` when as many of those do as may. For a body that `has_flowed`, as
    /// [`weal_control::admission::Admission::handle_upload`] says.
    pub fn begin_upload(self: &Arc<Self>, has_flowed: bool) -> Option<UploadShare> {
        self.admit_upload(has_flowed).then(|| UploadShare(Arc::clone(self)))
    }

    /// Waits until a request may go on whose body has flowed as far as there was room for it.
    pub async fn upload_turn(self: &Arc<Self>) -> UploadShare {
        loop {
            let changed = self.uploads_changed.notified();
            if let Some(share) = self.begin_upload(true) {
                return share;
            }
            changed.await;
        }
    }
}

impl Share for UploadShare {}

impl Drop for UploadShare {
    fn drop(&mut self) {
        self.0.end_upload();
        self.0.uploads_changed.notify_one();
    }
}
