//! Bodies that were never meant for the API.

use tokio::runtime::Handle;
use tokio::task::block_in_place;
use weal_fuzz::check_json;
use weal_protocol::controller::{ConfigUpdate, JobSubmission, NoteOrder, ScaleOrder, SleepOrder, TokenOrder};

use crate::fake::Pool;

/// Calls that read a body and leave nothing behind, or nothing that grows.
const CALLS: [(&str, &str); 2] = [("POST", "/v1/jobs/dry-run"), ("POST", "/v1/apps/shop/sleep")];

#[test]
fn fuzz_orders() {
    weal_fuzz::target("api-order", |bytes| {
        check_json::<ConfigUpdate>(bytes);
        check_json::<NoteOrder>(bytes);
        check_json::<TokenOrder>(bytes);
        check_json::<SleepOrder>(bytes);
        check_json::<ScaleOrder>(bytes);
        check_json::<JobSubmission>(bytes);
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fuzz_api_bodies() {
    let pool = Pool::start().await;
    let handle = Handle::current();
    block_in_place(|| {
        weal_fuzz::target("api-body", |bytes| {
            let (method, path) = CALLS[bytes.len() % CALLS.len()];
            let (status, answer) = handle.block_on(pool.local(method, path, bytes.to_vec()));
            assert!(status < 500 || status == 503, "{method} {path}: {status} {answer}");
        });
    });
    assert_eq!(pool.status().await.config_generation, 0, "nothing was taken");
}
