//! An application from an image, as its owner meets it: every command that looks at a config, and its requests.

use std::fs;
use std::path::Path;

use serde_json::json;
use weal_testing::image::{Image, Layer};

use crate::identity::is_root;
use crate::load::get;
use crate::pool::{Pool, echo_program, text};

/// An image of the echo application and a shell; `None` where the libraries that they need cannot be told.
fn image(greeting: &str) -> Option<Image> {
    let echo = echo_program();
    let mut layer = Layer::of_programs(&[&echo, Path::new("/bin/sh")])?;
    layer.add("bin/echo-server", &fs::read(&echo).unwrap());
    layer.add("etc/passwd", b"app:x:4321:4321::/srv:/bin/sh\n");
    layer.add("srv/greeting", greeting.as_bytes());
    let run =
        json!({ "User": "app", "Entrypoint": ["/bin/echo-server"], "WorkingDir": "/srv", "ExposedPorts": { "80/tcp": {} } });
    Some(Image::new(vec![layer.done()], &run))
}

fn app(name: &str, more: &str) -> String {
    format!(
        "[app.{name}]\nimage = \"{name}.tar\"\n{more}\nhealth = \"/healthz\"\nmemory = \"64MiB\"\nsleep-after = \"1s\"\n\
         instances = {{ min = 0, max = 1 }}\nroutes = [{{ host = \"{name}.localhost\" }}]\n"
    )
}

#[test]
fn an_image_is_validated_shown_served_put_to_sleep_and_woken() {
    if !is_root() {
        return;
    }
    let Some(first) = image("first") else { return weal_testing::skip("there is no ldd here") };
    let mut pool = Pool::unwatched(&app("shop", "run = [\"--port\", \"$PORT\"]"));
    let place = |name: &str| pool.config().with_file_name(name);
    let missing = text(&pool.run(&["validate"]).stderr);
    assert!(missing.contains("shop.tar") && missing.contains("No such file"), "{missing}");
    first.write(&place("shop.tar"));
    let valid = pool.run(&["validate"]);
    assert!(valid.status.success() && !text(&valid.stderr).contains("warning"), "{}", text(&valid.stderr));
    let shown = text(&pool.run(&["config", "show", "--effective"]).stdout);
    assert!(shown.contains(&format!("image = \"{}\"", place("shop.tar").display())), "{shown}");
    pool.start();
    let asks = |pool: &Pool| get(pool.listen, "shop.localhost", "/");
    pool.eventually("an answer", || asks(&pool).ok().filter(|(status, _)| *status == 200));
    let beside = |script: &str| text(&pool.run(&["exec", "shop", "--", "sh", "-c", script]).stdout);
    assert_eq!(
        beside("read -r word < /srv/greeting; echo $word $PWD $HOME; [ -e /etc/shadow ] || echo alone").trim(),
        "first /srv /srv\nalone"
    );
    let state = |pool: &Pool| pool.status()?["apps"][0]["state"].as_str().map(str::to_owned);
    pool.eventually("it to sleep", || (state(&pool)? == "asleep").then_some(()));
    assert_eq!(asks(&pool).unwrap().0, 200, "a request wakes it");
    pool.write_unwatched(&app("shop", "run = [\"--port\", \"$PORT\"]\nentrypoint = [\"echo-server\"]"));
    let change = text(&pool.run(&["apply", "--dry-run"]).stdout);
    assert!(change.contains("entrypoint = the image's becomes [\"echo-server\"]"), "{change}");
}

#[test]
fn a_port_that_an_image_exposes_and_nobody_passes_on_is_warned_of() {
    let Some(made) = image("x") else { return weal_testing::skip("there is no ldd here") };
    let pool = Pool::new(&app("shop", ""));
    made.write(&pool.config().with_file_name("shop.tar"));
    let said = text(&pool.run(&["validate"]).stderr);
    assert!(said.contains("listens at 80/tcp"), "{said}");
}
