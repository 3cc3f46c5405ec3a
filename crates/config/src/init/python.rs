//! Python: Django, ASGI and WSGI applications, and plain scripts.

use super::look::Look;
use super::program::{Program, words};

/// Where the object of an application is looked for.
const MODULES: [&str; 8] = ["main.py", "app.py", "server.py", "api.py", "wsgi.py", "asgi.py", "app/main.py", "src/main.py"];
/// Files that list what a program needs, the first of which is named as the source.
const LISTS: [&str; 3] = ["pyproject.toml", "requirements.txt", "Pipfile"];

pub(super) fn detect(folder: &dyn Look) -> Option<Program> {
    let python = Python { folder, needs: needs(folder) };
    python.django().or_else(|| python.asgi()).or_else(|| python.wsgi()).or_else(|| python.script())
}

fn needs(folder: &dyn Look) -> String {
    LISTS.iter().filter_map(|file| folder.read(file)).collect::<Vec<_>>().join("\n").to_lowercase()
}

struct Python<'f> {
    folder: &'f dyn Look,
    /// All that the lists say, in lower case.
    needs: String,
}

impl Python<'_> {
    fn source(&self) -> Option<&'static str> {
        LISTS.into_iter().find(|file| self.folder.has(file))
    }

    fn django(&self) -> Option<Program> {
        let manage = self.folder.read("manage.py")?;
        let (_, after) = manage.split_once("DJANGO_SETTINGS_MODULE")?;
        let settings = after.split(['"', '\'']).find(|part| part.contains(".settings"))?;
        let project = settings.split(".settings").next()?;
        let run = if self.needs.contains("gunicorn") {
            [self.tool("gunicorn"), words(&format!("{project}.wsgi --bind 127.0.0.1:$PORT"))].concat()
        } else {
            [self.interpreter(), words("manage.py runserver 127.0.0.1:$PORT --noreload")].concat()
        };
        let program = Program::new("manage.py", run).named(Some(project.to_owned()));
        let hosts =
            format!("Django answers only to hosts in ALLOWED_HOSTS of {project}/settings.py: the route's host has to be one");
        Some(program.with_note(hosts))
    }

    fn asgi(&self) -> Option<Program> {
        let (file, object) = self.object(&["FastAPI(", "Starlette(", "Litestar(", "Quart("])?;
        let line = format!("{object} --host 127.0.0.1 --port $PORT");
        Some(self.found(&file, [self.tool("uvicorn"), words(&line)].concat()))
    }

    fn wsgi(&self) -> Option<Program> {
        let (file, object) = self.object(&["Flask(", "Bottle("])?;
        let run = if self.needs.contains("gunicorn") {
            [self.tool("gunicorn"), words(&format!("{object} --bind 127.0.0.1:$PORT"))].concat()
        } else {
            [self.tool("flask"), words(&format!("--app {object} run --host 127.0.0.1 --port $PORT"))].concat()
        };
        Some(self.found(&file, run))
    }

    fn script(&self) -> Option<Program> {
        if let Some(name) = self.entry_point() {
            return Some(self.found("pyproject.toml", self.tool(&name)).named(Some(name)));
        }
        let file = MODULES.into_iter().find(|file| self.folder.has(file))?;
        Some(self.found(file, [self.interpreter(), vec![file.to_owned()]].concat()))
    }

    fn found(&self, file: &str, run: Vec<String>) -> Program {
        Program::new(self.source().unwrap_or(file), run).named(self.project_name())
    }

    /// The file and `module:object` of the first application that one of `makers` makes at the start of a line.
    fn object(&self, makers: &[&str]) -> Option<(String, String)> {
        MODULES.iter().find_map(|file| {
            let text = self.folder.read(file)?;
            let is_made = |line: &&str| !line.starts_with([' ', '\t', '#']) && makers.iter().any(|maker| line.contains(maker));
            let name = text.lines().find(is_made)?.split('=').next()?.split(':').next()?.trim().to_owned();
            let module = file.trim_end_matches(".py").replace('/', ".");
            Some(((*file).to_owned(), format!("{module}:{name}")))
        })
    }

    fn interpreter(&self) -> Vec<String> {
        self.within("python").unwrap_or_else(|| words("python3"))
    }

    /// A program that a package brings.
    fn tool(&self, name: &str) -> Vec<String> {
        self.within(name).unwrap_or_else(|| words(name))
    }

    /// A program of the folder's own environment; `None` where it has none.
    fn within(&self, name: &str) -> Option<Vec<String>> {
        match self.environment() {
            Some(environment) => Some(vec![format!("./{environment}/bin/{name}")]),
            None if self.folder.has("uv.lock") => Some(words(&format!("uv run {name}"))),
            None if self.folder.has("poetry.lock") => Some(words(&format!("poetry run {name}"))),
            None => None,
        }
    }

    /// A virtual environment in the folder.
    fn environment(&self) -> Option<&'static str> {
        [".venv", "venv"].into_iter().find(|folder| self.folder.has(&format!("{folder}/bin/python")))
    }

    fn project(&self) -> Option<toml::Table> {
        let text = self.folder.read("pyproject.toml")?;
        text.parse::<toml::Table>().ok()?.get("project")?.as_table().cloned()
    }

    fn project_name(&self) -> Option<String> {
        self.project()?.get("name")?.as_str().map(str::to_owned)
    }

    fn entry_point(&self) -> Option<String> {
        self.project()?.get("scripts")?.as_table()?.keys().next().cloned()
    }
}
