//! Requests by the addresses of their clients: [`AddressPlaces`](weal_control::admission::addresses::AddressPlaces) behind the cluster's lock.

use std::sync::Arc;

use tokio::sync::oneshot;
use weal_control::admission::addresses::{AddressPlace, Full};
use weal_model::Network;

use super::addresses::Addresses;
use super::{Cluster, Core};
use crate::http::request_body::Share;

/// A request's part of what its client's address may hold, until this is dropped.
#[derive(Debug)]
pub(crate) struct ClientPlace {
    cluster: Arc<Cluster>,
    place: AddressPlace,
}

/// Tells when a request may go on.
pub(crate) type Turn = oneshot::Receiver<()>;

/// A request's part of the seats that may wait for bodies, until this is dropped.
#[derive(Debug)]
pub(crate) struct UploadShare {
    cluster: Arc<Cluster>,
    place: Option<AddressPlace>,
}

impl Cluster {
    /// One address may hold so many percent of the seats.
    pub fn limit_addresses(&self, percent: u32) {
        let mut core = self.lock();
        core.addresses.percent = percent;
        core.bound_addresses();
    }

    /// A request of `address` comes, before it arrives. `None` where addresses may hold all seats. With a turn it has to wait for that.
    pub fn begin_client(self: &Arc<Self>, address: Network) -> Result<Option<(ClientPlace, Option<Turn>)>, Full> {
        let mut core = self.lock();
        let addresses = &mut core.addresses;
        if !addresses.places.is_bounded() {
            return Ok(None);
        }
        let (place, has_room) = addresses.places.handle_request(address)?;
        let turn = (!has_room).then(|| {
            let (sender, turn) = oneshot::channel();
            addresses.waiting.insert(place, sender);
            turn
        });
        Ok(Some((ClientPlace { cluster: Arc::clone(self), place }, turn)))
    }

    /// Lets a request of `address` go on whose body has not all come; `None` when as many of those do as may. `address` is `None` where it may
    /// hold all that there is. For a body that `has_flowed`, as [`weal_control::admission::Admission::handle_upload`] says.
    pub fn begin_upload(self: &Arc<Self>, has_flowed: bool, address: Option<Network>) -> Option<UploadShare> {
        let mut core = self.lock();
        let has_room = address.is_none_or(|address| core.addresses.uploads.has_room(address));
        if !has_room || !core.admission.handle_upload(has_flowed) {
            return None;
        }
        let place = address.and_then(|address| core.addresses.uploads.handle_request(address).ok());
        Some(UploadShare { cluster: Arc::clone(self), place: place.map(|(place, _)| place) })
    }

    /// Waits until a request may go on whose body has flowed as far as there was room for it.
    pub async fn upload_turn(self: &Arc<Self>, address: Option<Network>) -> UploadShare {
        loop {
            let changed = self.uploads_changed.notified();
            if let Some(share) = self.begin_upload(true, address) {
                return share;
            }
            changed.await;
        }
    }
}

impl Core {
    /// Lets requests go on that wait for a place, as many as there are places by now.
    pub(super) fn bound_addresses(&mut self) {
        let (seats, Addresses { percent, places, uploads, waiting }) = (self.admission.seats(), &mut self.addresses);
        places.handle_seats(seats, *percent);
        uploads.handle_seats(seats.map(|seats| seats / 2), *percent);
        while let Some(place) = places.poll_granted() {
            // Whoever has stopped to wait gives its place back.
            if let Some(turn) = waiting.remove(&place) {
                let _ = turn.send(());
            }
        }
    }
}

impl Drop for ClientPlace {
    fn drop(&mut self) {
        let mut core = self.cluster.lock();
        core.addresses.waiting.remove(&self.place);
        core.addresses.places.handle_end(self.place);
        core.bound_addresses();
    }
}

impl Share for UploadShare {}

impl Drop for UploadShare {
    fn drop(&mut self) {
        let mut core = self.cluster.lock();
        core.admission.handle_upload_end();
        if let Some(place) = self.place {
            core.addresses.uploads.handle_end(place);
        }
        drop(core);
        // The next one in line may be of an address that has its part.
        self.cluster.uploads_changed.notify_waiters();
    }
}
