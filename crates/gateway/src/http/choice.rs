//! What of a request its place in the queue and its instance are chosen by.

use std::net::IpAddr;

use http::Request;
use http::header::HeaderValue;
use weal_control::admission::IncomingRequest;
use weal_control::dispatch::locality::hash_of;
use weal_control::dispatch::{InstanceIndex, RequestKey};
use weal_model::DispatchRules;

use crate::routing::affinity::{cookie, set_cookie};
use crate::routing::table::Destination;

/// A request as admission sees it. Its body does not matter.
pub(super) fn incoming<B>(request: &Request<B>, destination: &Destination) -> IncomingRequest {
    let rules = &destination.rules;
    let name = rules.dispatch.policy.reads_names().then(|| name_of(request, &rules.dispatch));
    let of_cookie = |name: &String| destination.cluster.instance_of_token(cookie(request.headers(), name)?);
    let prefers = rules.dispatch.affinity.as_ref().and_then(of_cookie);
    let in_session = rules.session_cookie.as_ref().is_some_and(|name| cookie(request.headers(), name).is_some());
    IncomingRequest { class: destination.class, in_session, key: RequestKey { name, prefers } }
}

/// A connection that nobody reads, as admission sees it: it is named by its client, whose connections so come to the same instance.
pub(crate) fn unread(client: IpAddr, destination: &Destination) -> IncomingRequest {
    let dispatch = &destination.rules.dispatch;
    let name = dispatch.policy.reads_names().then(|| hash_of(dispatch.hash, client.to_string().as_bytes()));
    IncomingRequest { class: destination.class, in_session: false, key: RequestKey { name, prefers: None } }
}

/// The cookie by which the next request of a client comes to `instance` again. `None` where none is asked for, and when its request has brought
/// that one, which it therefore `preferred`.
pub(super) fn new_cookie(
    destination: &Destination,
    preferred: Option<InstanceIndex>,
    instance: InstanceIndex,
    is_secure: bool,
) -> Option<HeaderValue> {
    let name = destination.rules.dispatch.affinity.as_ref().filter(|_| preferred != Some(instance))?;
    set_cookie(name, &destination.cluster.token_of(instance)?, is_secure)
}

/// The object that is asked for: its path, without the query unless that is part of the name (Tsai 3.4.3).
fn name_of<B>(request: &Request<B>, rules: &DispatchRules) -> u64 {
    let uri = request.uri();
    let whole = uri.path_and_query().filter(|_| rules.hash_query).map(|whole| whole.as_str());
    hash_of(rules.hash, whole.unwrap_or_else(|| uri.path()).as_bytes())
}
