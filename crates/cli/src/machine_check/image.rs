//! What an image lacks that an application needs of it.

use std::path::Path;

use weal_image::{Image, Settings};
use weal_model::AppSpec;

use super::found::{Found, found, nearest};

/// What is wrong with its image, as far as that can be told without unpacking it.
pub(super) fn of_app(app: &AppSpec) -> Vec<Found> {
    let Some(path) = app.process.image.as_deref().map(Path::new) else { return Vec::new() };
    let image = match Image::open(path) {
        Ok(image) => image,
        Err(error) => return vec![found("image", error, if path.exists() { String::new() } else { nearest(path) })],
    };
    let settings = image.settings();
    if settings.command(app.process.entrypoint.as_deref(), &app.run).is_empty() {
        return vec![found("image", "its image says no command", "write it in `run`")];
    }
    port(app, settings).into_iter().collect()
}

/// A port that the image exposes is where its program listens unless it is told another one.
fn port(app: &AppSpec, settings: &Settings) -> Option<Found> {
    let words = app.run.iter().chain(app.process.entrypoint.iter().flatten()).chain(app.env.values());
    let is_told = app.pass_socket || words.into_iter().any(|word| word.contains("PORT"));
    if is_told || settings.ports.is_empty() {
        return None;
    }
    let message = format!(
        "its image says that it listens at {}, and weal gives each instance a port of its own",
        settings.ports.join(", ")
    );
    Some(found("image", message, "PORT in its environment says which: if it does not read that, pass `$PORT` in `run` or `env`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_of_the_image_is_told_of_unless_the_config_passes_its_own_on() {
        let settings = Settings { ports: vec!["80/tcp".to_owned()], ..Settings::default() };
        let mut app = AppSpec { run: Vec::new(), ..AppSpec::example("shop") };
        app.env.clear();
        assert!(port(&app, &settings).unwrap().message.contains("listens at 80/tcp"));
        assert_eq!(port(&app, &Settings::default()), None);
        app.env.insert("HTTP_PORT".to_owned(), "$PORT".to_owned());
        assert_eq!(port(&app, &settings), None);
    }

    #[test]
    fn an_image_that_is_not_there_is_named_with_what_is() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("shop.tar"), "").unwrap();
        let mut app = AppSpec::example("shop");
        app.process.image = Some(folder.path().join("shp.tar").display().to_string());
        let all = of_app(&app);
        assert!(all[0].message.contains("No such file") && all[0].help.contains("holds shop.tar"), "{all:?}");
        app.process.image = Some(folder.path().join("shop.tar").display().to_string());
        assert!(of_app(&app)[0].message.contains("is no image"));
    }
}
