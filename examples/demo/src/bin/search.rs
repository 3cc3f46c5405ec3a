//! A search: every question costs 20 ms of CPU.

use std::time::Duration;

use weal_demo::{Reply, burn, serve};

fn main() -> anyhow::Result<()> {
    serve(|call| match call.path.as_str() {
        "/" | "/search" => {
            let found = burn(Duration::from_millis(20)) % 100;
            Reply::ok(format!("{found} results\n"))
        }
        _ => Reply::not_found(),
    })
}
