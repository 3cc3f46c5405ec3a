//! The one place of the controller that reads the clock for [`weal_model::Time`].

use std::time::SystemTime;

use weal_model::Time;

/// Now. A clock set before 1970 counts as 1970.
pub(crate) fn now() -> Time {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Time::ZERO + since_epoch
}
