//! Which instance a request goes to: the rules that an application chooses.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How one of several instances is chosen for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DispatchPolicy {
    /// The one with the fewest outstanding requests for its weight.
    #[default]
    LeastLoaded,
    /// Each in turn, by weight, whatever it has to do.
    RoundRobin,
    /// The less loaded of two that are drawn at random.
    PowerOfTwo,
    /// One of the `replication` instances that serve the part of the name space in which the URL is (Tsai 3.3.1).
    UrlHash,
    /// The one that served this URL before, unless it is overloaded (Pai et al. 1998; Tsai 2.4).
    Lard,
    /// One of those that served this URL before; an overloaded set gets one more (Pai et al. 1998).
    LardR,
    /// The first from the URL's place on whose load is at most a quarter above the mean (Mirrokni et al. 2018).
    BoundedLoad,
}

impl DispatchPolicy {
    /// All of them, as a config writes them.
    pub const ALL: [Self; 7] =
        [Self::LeastLoaded, Self::RoundRobin, Self::PowerOfTwo, Self::UrlHash, Self::Lard, Self::LardR, Self::BoundedLoad];

    /// As it is written in a config.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::LeastLoaded => "least-loaded",
            Self::RoundRobin => "round-robin",
            Self::PowerOfTwo => "power-of-two",
            Self::UrlHash => "url-hash",
            Self::Lard => "lard",
            Self::LardR => "lard-r",
            Self::BoundedLoad => "bounded-load",
        }
    }

    /// True when the choice depends on what is asked for.
    pub fn reads_names(self) -> bool {
        matches!(self, Self::UrlHash | Self::Lard | Self::LardR | Self::BoundedLoad)
    }

    /// True when [`DispatchRules::replication`] counts.
    pub fn has_sets(self) -> bool {
        matches!(self, Self::UrlHash | Self::LardR)
    }
}

/// How a URL becomes a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NameHash {
    /// FNV-1a with a final mix: spreads similar names evenly.
    #[default]
    Fnv,
    /// The sum of the characters (Tsai 3.4.3): the cheapest, and easily uneven.
    Charsum,
}

impl NameHash {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Fnv, Self::Charsum];

    /// As it is written in a config.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fnv => "fnv",
            Self::Charsum => "charsum",
        }
    }
}

/// How the instances of one application are chosen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct DispatchRules {
    /// By what.
    pub policy: DispatchPolicy,
    /// Instances that serve each part of the name space, with [`DispatchPolicy::UrlHash`]; the most that serve one URL, with
    /// [`DispatchPolicy::LardR`]. Invariant: at least 1.
    pub replication: u32,
    /// How URLs become numbers.
    pub hash: NameHash,
    /// True: URLs that differ in their query are different ones.
    pub hash_query: bool,
    /// The cookie by which a client's requests come to the same instance; `None` sets none.
    pub affinity: Option<String>,
}

impl DispatchRules {
    /// More instances than this for each part of the name space are no longer locality.
    pub const MOST_REPLICAS: u32 = 16;
}

impl Default for DispatchRules {
    fn default() -> Self {
        Self { policy: DispatchPolicy::LeastLoaded, replication: 2, hash: NameHash::Fnv, hash_query: false, affinity: None }
    }
}
