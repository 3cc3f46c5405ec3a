//! TLS of a real pool as those look at it who test servers for what is known to be weak: openssl, asked what testssl.sh asks.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::pool::{Pool, free_ports, text};
use crate::site::{echo, site};

/// What openssl says of a handshake with these options, and whether one came about. Old versions and weak ciphers are switched on in it.
fn shake(pool: &Pool, port: u16, options: &[&str], said: &[u8]) -> (bool, String) {
    let mut command = Command::new("openssl");
    command.args(["s_client", "-connect", &format!("127.0.0.1:{port}"), "-servername", "echo.localhost", "-CAfile"]);
    command.arg(pool.state().join("tls/test.pem")).args(options);
    let streams = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = streams.spawn().unwrap();
    // It may have ended already.
    let _ = child.stdin.take().unwrap().write_all(said);
    let output = child.wait_with_output().unwrap();
    let printed = text(&output.stdout) + &text(&output.stderr);
    (printed.contains("Cipher is ") && !printed.contains("Cipher is (NONE)"), printed)
}

const ANYTHING: &str = "ALL:COMPLEMENTOFALL:@SECLEVEL=0";

#[test]
fn nothing_that_is_known_to_be_weak_is_agreed_on() {
    if Command::new("openssl").arg("version").output().is_err() {
        return weal_testing::skip("there is no openssl");
    }
    let [port] = free_ports();
    let mut pool = site("", Some(port), &echo());
    pool.up();
    for (version, is_spoken) in [("-tls1", false), ("-tls1_1", false), ("-tls1_2", true), ("-tls1_3", true)] {
        let (shaken, printed) = shake(&pool, port, &[version, "-cipher", ANYTHING], b"");
        assert_eq!(shaken, is_spoken, "{version}: {printed}");
        if shaken {
            assert!(printed.contains("Verify return code: 0 (ok)"), "{version}: {printed}");
            assert!(printed.contains("Compression: NONE"), "CRIME: {printed}");
        }
    }
    let agreed: Vec<String> = ciphers().into_iter().filter(|cipher| agrees_on(&pool, port, cipher)).collect();
    assert!(!agreed.is_empty());
    // Forward secrecy, and neither CBC (BEAST, Lucky 13) nor RSA's key exchange (ROBOT), RC4, 3DES (SWEET32), export keys (FREAK, Logjam).
    let is_strong = |cipher: &String| cipher.starts_with("ECDHE-") && (cipher.contains("GCM") || cipher.contains("CHACHA20"));
    assert!(agreed.iter().all(is_strong), "{agreed:?}");
}

/// Ciphers of TLS 1.2 that openssl knows.
fn ciphers() -> Vec<String> {
    let listed = Command::new("openssl").args(["ciphers", "-s", "-tls1_2", ANYTHING]).output().unwrap();
    text(&listed.stdout).trim().split(':').map(str::to_owned).collect()
}

fn agrees_on(pool: &Pool, port: u16, cipher: &str) -> bool {
    shake(pool, port, &["-tls1_2", "-cipher", &format!("{cipher}:@SECLEVEL=0")], b"").0
}

#[test]
fn a_client_cannot_make_the_gateway_shake_hands_again() {
    if Command::new("openssl").arg("version").output().is_err() {
        return weal_testing::skip("there is no openssl");
    }
    let [port] = free_ports();
    let mut pool = site("", Some(port), &echo());
    pool.up();
    // `R` has openssl ask for it.
    let (shaken, printed) = shake(&pool, port, &["-tls1_2"], b"R\n");
    assert!(shaken && printed.contains("RENEGOTIATING"), "{printed}");
    assert!(printed.contains("Secure Renegotiation IS supported"), "{printed}");
    let after = printed.split("RENEGOTIATING").nth(1).unwrap();
    assert!(!after.contains("verify return:"), "no certificate is shown again: {printed}");
}
