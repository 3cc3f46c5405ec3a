//! How a request's class is carried along from tier to tier.
//!
//! The gateway tells an instance that calls others the class of each request, in the field [`FIELD`]. An instance that passes the field on with
//! its calls, as it does with `traceparent`, has them treated as the request is. Its value is a mark: 128 random bits that stand for the class
//! at this gateway only. Nobody outside learns one, and a value that is no mark means no more than no field at all. What a client sends in
//! this field is removed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use http::{HeaderName, HeaderValue};
use weal_model::ClassName;

use super::file::{Keeper, hex, random};

/// The field that carries a mark.
pub(crate) const FIELD: HeaderName = HeaderName::from_static("x-weal-class");
/// Below the state directory; only the gateway may read it. Marks outlive a gateway: instances have requests in them while it is replaced.
const FILE: &str = "gateway/marks.json";

/// The marks of all classes.
#[derive(Debug)]
pub(crate) struct Marks {
    file: PathBuf,
    by_class: BTreeMap<ClassName, String>,
    keeper: Arc<Keeper>,
}

impl Marks {
    /// Those that an earlier gateway made.
    pub fn load(state_dir: &Path, keeper: Arc<Keeper>) -> Self {
        let file = state_dir.join(FILE);
        let read = std::fs::read(&file).ok();
        let by_class = read.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
        Self { file, by_class, keeper }
    }

    /// The mark of `class`, made when there is none.
    pub fn mark(&mut self, class: &ClassName) -> HeaderValue {
        if !self.by_class.contains_key(class) {
            match random::<16>().map(|bytes| hex(&bytes)) {
                Ok(mark) => {
                    self.by_class.insert(class.clone(), mark);
                    match serde_json::to_vec(&self.by_class) {
                        Ok(content) => self.keeper.keep(&self.file, content),
                        Err(error) => tracing::warn!(file = %self.file.display(), %error, "cannot keep the marks of classes"),
                    }
                }
                Err(error) => tracing::error!(%error, "no random numbers: calls bring no class along"),
            }
        }
        let mark = self.by_class.get(class).map_or("", String::as_str);
        HeaderValue::from_str(mark).unwrap_or_else(|_| HeaderValue::from_static(""))
    }
}
