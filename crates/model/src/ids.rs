//! Names. Cheap to clone, ordered, and different types so that one is never taken for another.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

macro_rules! name {
    ($(#[$doc:meta])* $type:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
        #[serde(transparent)]
        pub struct $type(Arc<str>);

        impl $type {
            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
        impl<T: Into<Arc<str>>> From<T> for $type {
            fn from(name: T) -> Self {
                Self(name.into())
            }
        }
        impl Borrow<str> for $type {
            fn borrow(&self) -> &str {
                &self.0
            }
        }
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }
    };
}

name!(
    /// An application, and the cluster of its instances.
    AppName
);
name!(
    /// A service class.
    ClassName
);
name!(
    /// A node: one machine or one slice of it.
    NodeName
);
name!(
    /// A gateway process.
    GatewayName
);
name!(
    /// One instance, `APP-NUMBER`. Never reused while anything of the old one is left.
    InstanceId
);
name!(
    /// A batch job.
    JobName
);

/// A flow: the traffic of one service class to one cluster through one gateway (Pacifici section 2).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct FlowId {
    /// The gateway that the requests enter through.
    pub gateway: GatewayName,
    /// The cluster that the gateway sends them to.
    pub app: AppName,
    /// Their service class.
    pub class: ClassName,
}

impl fmt::Display for FlowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.app, self.class)
    }
}
