//! gRPC from end to end with programs that are not ours: the interoperability tests of gRPC itself, from its implementation in Go.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::pool::{Pool, free_ports, go_program, text};
use crate::site::site;

const MODULE: &str = "google.golang.org/grpc/interop";
const VERSION: &str = "v1.85.0";

/// The cases of gRPC's description of interoperability tests that need no account anywhere.
const CASES: [&str; 14] = [
    "empty_unary",
    "large_unary",
    "client_streaming",
    "server_streaming",
    "ping_pong",
    "empty_stream",
    "timeout_on_sleeping_server",
    "cancel_after_begin",
    "cancel_after_first_response",
    "status_code_and_message",
    "special_status_message",
    "custom_metadata",
    "unimplemented_method",
    "unimplemented_service",
];

/// A program of gRPC's, where it can be had.
fn program(name: &str) -> Option<PathBuf> {
    go_program(&format!("grpc-{VERSION}"), MODULE, VERSION, name)
}

#[test]
fn grpcs_own_interoperability_tests_pass() {
    let (Some(client), Some(server)) = (program("client"), program("server")) else { return };
    let server = crate::pool::open_to_all(server);
    let [https] = free_ports();
    let app = format!(
        "[app.calls]\nrun = [\"{}\", \"--port\", \"$PORT\"]\nprotocol = \"h2c\"\nmemory = \"128MiB\"\nroutes = [{{ host = \"localhost\" }}]\n",
        server.display()
    );
    let mut pool = site("", Some(https), &app);
    pool.up();
    for case in CASES {
        run(&client, &["--server_port", &pool.listen.to_string()], case);
        let ca = pool.state().join("tls/test.pem");
        let secure = ["--server_port", &https.to_string(), "--use_tls", "--use_test_ca", "--ca_file", ca.to_str().unwrap()];
        run(&client, &secure, case);
    }
    assert_untouched(&pool);
}

fn run(client: &Path, to: &[&str], case: &str) {
    let output = Command::new(client).args(["--server_host", "localhost", "--test_case", case]).args(to).output().unwrap();
    assert!(output.status.success(), "{case} {to:?}: {}{}", text(&output.stdout), text(&output.stderr));
}

/// Nothing of it was the instance's fault.
fn assert_untouched(pool: &Pool) {
    let status = pool.status().unwrap();
    assert_eq!(status["apps"][0]["state"], "ready", "{status}");
}
