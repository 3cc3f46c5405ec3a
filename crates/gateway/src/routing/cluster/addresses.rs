//! What of a cluster's seats the requests of one client address hold, and the tasks that wait for a place. Half of the seats may wait for bodies
//! that have not all come; of these an address has its part as well.

use std::collections::BTreeMap;

use tokio::sync::oneshot;
use weal_control::admission::addresses::{AddressPlace, AddressPlaces};

/// Who holds what.
#[derive(Debug)]
pub(super) struct Addresses {
    /// Percent of the seats that one address may hold.
    pub percent: u32,
    /// Requests that go on.
    pub places: AddressPlaces,
    /// Those of them whose bodies have not all come. None of these waits here.
    pub uploads: AddressPlaces,
    /// Those that wait.
    pub waiting: BTreeMap<AddressPlace, oneshot::Sender<()>>,
}

impl Default for Addresses {
    fn default() -> Self {
        Self { percent: 100, places: AddressPlaces::default(), uploads: AddressPlaces::default(), waiting: BTreeMap::new() }
    }
}
