//! `[[notify]]` tells real receivers.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use crate::pool::{PATIENCE, Pool, echo_app, text};
use crate::posts::posts;

#[test]
fn a_failed_deploy_is_told_to_an_address_and_a_command_and_so_is_its_end() {
    let (port, messages) = posts("/hook/s3cret");
    let folder = tempfile::tempdir().unwrap();
    let notes = folder.path().join("notes");
    std::fs::write(&notes, "").unwrap();
    // The command is nobody when root runs the test.
    std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    std::fs::set_permissions(&notes, Permissions::from_mode(0o666)).unwrap();
    let script = "cat >> \"$1\"; echo >> \"$1\"; echo \"$WEAL_EVENT $WEAL_SUBJECT $WEAL_RESOLVED\" >> \"$1\"";
    let notify = format!(
        "[[notify]]\non = [\"deploy-failed\"]\nafter = \"0s\"\nurl = \"http://127.0.0.1:{port}/hook/s3cret\"\n\n\
         [[notify]]\non = [\"deploy-failed\"]\nafter = \"0s\"\nrun = [\"/bin/sh\", \"-c\", {script:?}, \"sh\", {:?}]\n\n",
        notes.display().to_string()
    );
    let with = |more: &str| notify.clone() + &echo_app("echo", more);
    let mut pool = Pool::unwatched(&with(""));
    pool.up();
    pool.write_unwatched(&with("").replace("\"--port\", \"$PORT\"", "\"--port\", \"nonsense\""));
    let failed = pool.run(&["deploy", "--yes"]);
    assert_eq!(failed.status.code(), Some(1), "{}{}", text(&failed.stdout), text(&failed.stderr));
    let told = messages.recv_timeout(*PATIENCE).expect("the receiver refused the first time, and is asked again");
    assert_eq!((&told["event"], &told["subject"], &told["resolved"]), (&"deploy-failed".into(), &"echo".into(), &false.into()));
    assert!(told["text"].as_str().unwrap().contains("still serves"), "{told}");

    pool.write_unwatched(&with("env = { MODE = \"mended\" }"));
    let mended = pool.run(&["deploy", "--yes"]);
    assert!(mended.status.success(), "{}", text(&mended.stderr));
    let over = messages.recv_timeout(*PATIENCE).expect("the end is told");
    assert_eq!((&over["event"], &over["resolved"]), (&"deploy-failed".into(), &true.into()));
    let written = pool.eventually("the command has been told twice", || {
        let written = std::fs::read_to_string(&notes).unwrap();
        (written.lines().filter(|line| line.starts_with("deploy-failed echo ")).count() == 2).then_some(written)
    });
    assert!(written.contains("\"resolved\":false") && written.contains("deploy-failed echo 1"), "{written}");
    let log = std::fs::read_to_string(pool.state().join("logs/supervisor.log")).unwrap_or_default();
    assert!(!log.contains("s3cret") && !pool.printed().contains("s3cret"), "no log has the address");
    for shown in
        [&["config", "show"][..], &["config", "show", "--effective"], &["config", "show", "-o", "json"], &["status"], &["events"]]
    {
        let output = pool.run(shown);
        let told = text(&output.stdout) + &text(&output.stderr);
        assert!(output.status.success() && !told.contains("s3cret"), "{shown:?}: {told}");
        assert!(shown[0] != "config" || told.contains(&format!("http://127.0.0.1:{port}/…")), "{shown:?}: {told}");
    }

    // The version that failed is no place to go back to.
    let refused = pool.run(&["rollback", "--yes", "2"]);
    let said = text(&refused.stderr);
    assert!(refused.status.code() == Some(1) && said.contains("version 2 did not come up"), "{said}");
    assert!(text(&pool.run(&["history"]).stdout).contains("failed"));
    let back = pool.run(&["rollback", "--yes"]);
    assert!(back.status.success() && text(&back.stdout).contains("back to version 1 of"), "{}", text(&back.stdout));
}
