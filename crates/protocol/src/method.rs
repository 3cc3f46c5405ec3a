//! The name and the types of one call.

use std::marker::PhantomData;

/// A call: its name with its version, and the types that go there and back.
pub struct Method<Request, Response> {
    name: &'static str,
    types: PhantomData<fn(Request) -> Response>,
}

impl<Request, Response> Method<Request, Response> {
    /// A method named `role.vN/verb`.
    pub const fn new(name: &'static str) -> Self {
        Self { name, types: PhantomData }
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
