//! Images of programs with all their files, in the formats of OCI and of `docker save`.
//!
//! [`Image::open`] reads what an image says of itself and checks it. [`Cache::provide`] unpacks an image once, under the digest of its config,
//! and every instance of it reads the same files. [`Rootfs`] looks things up in what was unpacked, and no link in it leads out.
//!
//! Whoever made an image may mean harm. So every document has a longest length, every digest is compared before anything is unpacked, and
//! [layers](layer) are unpacked within a bound of bytes, of entries and of depth.

mod cache;
mod digest;
mod documents;
mod error;
mod image;
mod layer;
mod paths;
mod rootfs;
mod settings;
mod source;
mod tree;

pub use cache::{Cache, Unpacked};
pub use digest::{BadDigest, Digest};
pub use error::{ImageError, LayerError};
pub use image::Image;
pub use layer::Room;
pub use rootfs::{NotFound, Rootfs};
pub use settings::Settings;
