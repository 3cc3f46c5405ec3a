//! How an image says that its program is run.

use std::collections::BTreeMap;

use crate::documents::Execution;
use crate::error::ImageError;

/// How an image says that its program is run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// Its user, with or without a group: `app`, `1000`, `app:staff`. Empty is root.
    pub user: String,
    /// Its environment.
    pub env: BTreeMap<String, String>,
    /// What its command begins with.
    pub entrypoint: Vec<String>,
    /// What follows unless somebody says something else.
    pub cmd: Vec<String>,
    /// Its working directory; empty is the root.
    pub cwd: String,
    /// The signal that asks it to end, as the image writes it.
    pub stop_signal: Option<String>,
    /// The ports at which it says that it listens: `8080/tcp`.
    pub ports: Vec<String>,
}

impl Settings {
    pub(crate) fn of(said: Execution) -> Result<Self, ImageError> {
        let settings = Self {
            user: said.user.unwrap_or_default(),
            env: said.env.unwrap_or_default().iter().filter_map(|line| pair(line)).collect(),
            entrypoint: said.entrypoint.unwrap_or_default(),
            cmd: said.cmd.unwrap_or_default(),
            cwd: said.working_dir.unwrap_or_default(),
            stop_signal: said.stop_signal.filter(|signal| !signal.is_empty()),
            ports: said.exposed_ports.unwrap_or_default().into_keys().collect(),
        };
        settings.check()?;
        Ok(settings)
    }

    fn check(&self) -> Result<(), ImageError> {
        let texts = [
            ("user", vec![&self.user]),
            ("environment", self.env.iter().flat_map(|(name, value)| [name, value]).collect()),
            ("entry point", self.entrypoint.iter().collect()),
            ("command", self.cmd.iter().collect()),
            ("working directory", vec![&self.cwd]),
        ];
        match texts.into_iter().find(|(_, texts)| texts.iter().any(|text| text.contains('\0'))) {
            Some((what, _)) => Err(ImageError::ZeroByte { what }),
            None => Ok(()),
        }
    }

    /// The command, where a config replaces the entry point by `entrypoint` and has `run` behind it. The image's own arguments belong to its own
    /// entry point: another one, or `run`, stands without them.
    pub fn command(&self, entrypoint: Option<&[String]>, run: &[String]) -> Vec<String> {
        let first = entrypoint.unwrap_or(&self.entrypoint);
        let rest = if run.is_empty() && entrypoint.is_none() { &self.cmd } else { run };
        first.iter().chain(rest).cloned().collect()
    }
}

/// `NAME=value`. Docker leaves a name without a value out, too.
fn pair(line: &str) -> Option<(String, String)> {
    let (name, value) = line.split_once('=').filter(|(name, _)| !name.is_empty())?;
    Some((name.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn what_a_config_says_takes_the_place_of_the_images_own_words() {
        let settings = Settings { entrypoint: words("/serve"), cmd: words("--port 80"), ..Settings::default() };
        assert_eq!(settings.command(None, &[]), words("/serve --port 80"));
        assert_eq!(settings.command(None, &words("--port 8")), words("/serve --port 8"));
        assert_eq!(settings.command(Some(&words("/sh -c")), &words("x")), words("/sh -c x"));
        assert_eq!(settings.command(Some(&words("/other")), &[]), words("/other"), "the arguments were for another program");
        assert_eq!(settings.command(Some(&[]), &words("/whole line")), words("/whole line"));
        let bare = Settings { cmd: words("/serve"), ..Settings::default() };
        assert_eq!((bare.command(None, &[]), bare.command(None, &words("/x"))), (words("/serve"), words("/x")));
    }

    #[test]
    fn a_zero_byte_reaches_no_process() {
        let said = Execution { env: Some(vec!["A=b\0c".to_owned(), "none".to_owned()]), ..Execution::default() };
        assert!(matches!(Settings::of(said), Err(ImageError::ZeroByte { what: "environment" })));
    }
}
