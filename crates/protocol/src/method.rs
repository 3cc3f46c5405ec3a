//! The name and the types of one call.

use std::marker::PhantomData;

/// The longest request of a call that says nothing else. A name or a question takes some hundred bytes.
const LONGEST: usize = 64 << 10;

/// A call: its name with its version, how long its request may be, and the types that go there and back.
pub struct Method<Request, Response> {
    name: &'static str,
    longest: usize,
    types: PhantomData<fn(Request) -> Response>,
}

impl<Request, Response> Method<Request, Response> {
    /// A method named `role.vN/verb`.
    pub const fn new(name: &'static str) -> Self {
        Self { name, longest: LONGEST, types: PhantomData }
    }

    /// The same with requests of up to `mebibytes`.
    #[must_use]
    pub const fn up_to(self, mebibytes: usize) -> Self {
        Self { longest: mebibytes << 20, ..self }
    }

    /// The longest request that is read, in bytes.
    pub const fn longest(&self) -> usize {
        self.longest
    }

    /// Its name.
    pub const fn name(&self) -> &'static str {
        self.name
    }
}

impl<Request, Response> Clone for Method<Request, Response> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<Request, Response> Copy for Method<Request, Response> {}

impl<Request, Response> std::fmt::Debug for Method<Request, Response> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}
