//! The documents of an image, as far as they are read here (OCI image specification 1.1, and what `docker save` writes).

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use crate::error::ImageError;

/// `index.json`, and each index that it names.
#[derive(Debug, Deserialize)]
pub(crate) struct Index {
    pub(crate) manifests: Vec<Descriptor>,
}

/// Names a document or a layer.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Descriptor {
    #[serde(default)]
    pub(crate) media_type: Option<String>,
    pub(crate) digest: String,
    pub(crate) size: u64,
    #[serde(default)]
    pub(crate) platform: Option<Platform>,
    #[serde(default)]
    pub(crate) annotations: Option<BTreeMap<String, String>>,
}

/// For which machines.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Platform {
    pub(crate) os: String,
    pub(crate) architecture: String,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Manifest {
    pub(crate) config: Descriptor,
    pub(crate) layers: Vec<Descriptor>,
}

/// One image in the `manifest.json` of `docker save`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Saved {
    pub(crate) config: String,
    #[serde(default)]
    pub(crate) repo_tags: Option<Vec<String>>,
    pub(crate) layers: Vec<String>,
}

/// The config of an image.
#[derive(Debug, Deserialize)]
pub(crate) struct Config {
    #[serde(default)]
    pub(crate) os: String,
    #[serde(default)]
    pub(crate) architecture: String,
    #[serde(default)]
    pub(crate) config: Option<Execution>,
    pub(crate) rootfs: Layers,
}

/// How its program is run.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct Execution {
    pub(crate) user: Option<String>,
    pub(crate) env: Option<Vec<String>>,
    pub(crate) entrypoint: Option<Vec<String>>,
    pub(crate) cmd: Option<Vec<String>>,
    pub(crate) working_dir: Option<String>,
    pub(crate) stop_signal: Option<String>,
    pub(crate) exposed_ports: Option<BTreeMap<String, IgnoredAny>>,
}

/// The digests of its layers, unpacked.
#[derive(Debug, Deserialize)]
pub(crate) struct Layers {
    pub(crate) diff_ids: Vec<String>,
}

pub(crate) fn understand<T: DeserializeOwned>(name: &str, text: &[u8]) -> Result<T, ImageError> {
    serde_json::from_slice(text).map_err(|source| ImageError::Document { name: name.to_owned(), source })
}
