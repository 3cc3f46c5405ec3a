//! Routes: which requests belong to which cluster and class.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ClassName;

/// One route of an application. A request matches when every part that is given matches; among several matching routes
/// the most specific wins: exact host before wildcard before none, then the longest path, then the one with a header.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RouteSpec {
    /// `shop.example` or `*.shop.example`, lower case, without port; `None` matches every host.
    pub host: Option<String>,
    /// `/exact` or `/prefix/*`; `None` matches every path.
    pub path: Option<String>,
    /// A header that must be there, with this value if one is given.
    pub header: Option<HeaderMatch>,
    /// The service class of the requests that match.
    pub class: ClassName,
}

/// A header to match.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HeaderMatch {
    /// Its name, lower case.
    pub name: String,
    /// Its exact value; `None` matches any.
    pub value: Option<String>,
}
