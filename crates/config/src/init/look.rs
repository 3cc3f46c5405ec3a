//! What a proposal is made of: files in a folder.

/// What a proposal may ask of a folder.
pub trait Look {
    /// The text of a file in it; `None` where there is none that can be read.
    fn read(&self, name: &str) -> Option<String>;
    /// Whether there is such a file.
    fn has(&self, name: &str) -> bool;
}
