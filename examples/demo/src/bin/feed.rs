//! A feed: cheap, 2 ms of CPU, but it waits 30 ms for somebody else.

use std::time::Duration;

use weal_demo::{Reply, burn, serve};

fn main() -> anyhow::Result<()> {
    serve(|call| match call.path.as_str() {
        "/" => {
            burn(Duration::from_millis(2));
            std::thread::sleep(Duration::from_millis(30));
            Reply::ok("nothing new\n")
        }
        _ => Reply::not_found(),
    })
}
