//! What `weal init` proposes is a config that weal takes, for each kind of program that it knows.

use std::collections::BTreeMap;

use weal_config::init::{InitError, Look, Proposal, Sketch, app_name, of_command, propose};
use weal_config::{MachineSize, parse, render_all};
use weal_model::Bytes;

const MACHINE: MachineSize = MachineSize { cpus: 4.0, memory: Bytes::gib(8) };

struct Folder(BTreeMap<&'static str, &'static str>);

impl Look for Folder {
    fn read(&self, name: &str) -> Option<String> {
        self.0.get(name).map(|text| (*text).to_owned())
    }

    fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }
}

fn of<const N: usize>(files: [(&'static str, &'static str); N]) -> Result<Proposal, InitError> {
    propose(&Folder(BTreeMap::from(files)), "My Shop")
}

/// The command and the notes; the text must be a config without warnings whose only application is `name`.
fn run_of(proposal: &Proposal, name: &str) -> (String, String) {
    let parsed = parse(&proposal.text, "/srv/shop/weal.toml", &MACHINE)
        .unwrap_or_else(|found| panic!("{}", render_all(&found, &proposal.text, false)));
    assert!(parsed.warnings.is_empty(), "{}", render_all(&parsed.warnings, &proposal.text, false));
    let names: Vec<&str> = parsed.spec.apps.keys().map(|name| name.as_str()).collect();
    assert_eq!(names, [name], "{}", proposal.text);
    assert!(proposal.text.lines().filter(|line| !line.is_empty()).count() <= 8, "{}", proposal.text);
    (parsed.spec.apps[name].run.join(" "), proposal.notes.join("; "))
}

#[test]
fn python_is_known_by_its_framework_and_its_environment() {
    let django = of([
        ("manage.py", "os.environ.setdefault('DJANGO_SETTINGS_MODULE', 'mysite.settings')\n"),
        ("requirements.txt", "Django==5\n"),
    ]);
    let (run, notes) = run_of(&django.unwrap(), "mysite");
    assert_eq!(run, "python3 manage.py runserver 127.0.0.1:$PORT --noreload");
    assert!(notes.contains("ALLOWED_HOSTS of mysite/settings.py"), "{notes}");

    let api = [
        ("pyproject.toml", "[project]\nname = \"price-api\"\ndependencies = [\"fastapi\"]\n"),
        ("main.py", "from fastapi import FastAPI\napi: FastAPI = FastAPI()\n"),
        (".venv/bin/python", ""),
    ];
    assert_eq!(run_of(&of(api).unwrap(), "price-api").0, "./.venv/bin/uvicorn main:api --host 127.0.0.1 --port $PORT");

    let flask = [("requirements.txt", "Flask\ngunicorn\n"), ("app.py", "app = Flask(__name__)\n"), ("uv.lock", "")];
    assert_eq!(run_of(&of(flask).unwrap(), "my-shop").0, "uv run gunicorn app:app --bind 127.0.0.1:$PORT");

    let (run, notes) = run_of(&of([("app.py", "print('no server')\n")]).unwrap(), "my-shop");
    assert_eq!(run, "python3 app.py");
    assert!(notes.contains("must listen on 127.0.0.1 at $PORT"), "{notes}");
}

#[test]
fn node_is_known_by_its_scripts_and_its_lock() {
    let start = [("package.json", r#"{"name": "@acme/shop-front", "scripts": {"start": "next start"}}"#), ("yarn.lock", "")];
    assert_eq!(run_of(&of(start).unwrap(), "shop-front").0, "yarn start");
    let main = [("package.json", r#"{"main": "lib/main.js"}"#), ("lib/main.js", "")];
    assert_eq!(run_of(&of(main).unwrap(), "my-shop").0, "node lib/main.js");
    assert_eq!(of([("package.json", "{}")]), Err(InitError::Nothing));
    let pages = [("index.html", "<p>hello")];
    assert_eq!(run_of(&of(pages).unwrap(), "my-shop").0, "python3 -m http.server $PORT --bind 127.0.0.1");
}

#[test]
fn ruby_is_known_by_its_gems() {
    let rails = [("Gemfile", "gem \"rails\"\n"), ("config/application.rb", ""), ("config.ru", "")];
    assert_eq!(run_of(&of(rails).unwrap(), "my-shop").0, "bundle exec rails server -b 127.0.0.1 -p $PORT");
    let rack = [("Gemfile", "gem 'puma', '~> 6'\n"), ("config.ru", "")];
    assert_eq!(run_of(&of(rack).unwrap(), "my-shop").0, "bundle exec puma -b tcp://127.0.0.1:$PORT config.ru");
    assert_eq!(of([("Gemfile", "gem 'rake'\n")]), Err(InitError::Nothing));
}

#[test]
fn what_has_to_be_built_first_says_so() {
    let (run, notes) = run_of(&of([("go.mod", "module example.com/acme/api/v2\n\ngo 1.22\n"), ("main.go", "")]).unwrap(), "api");
    assert_eq!(run, "./api");
    assert!(notes.contains("go build -o api ."), "{notes}");

    let cargo = [("Cargo.toml", "[package]\nname = \"shop_server\"\n[[bin]]\nname = \"shopd\"\n")];
    assert_eq!(run_of(&of(cargo).unwrap(), "shopd").0, "./target/release/shopd");

    let pom = "<?xml version=\"1.0\"?><project xmlns=\"http://maven.apache.org/POM/4.0.0\"><parent>\
               <groupId>org.springframework.boot</groupId><artifactId>spring-boot-starter-parent</artifactId>\
               <version>3.1</version></parent><artifactId>petclinic</artifactId></project>";
    let (run, notes) = run_of(&of([("pom.xml", pom)]).unwrap(), "petclinic");
    assert_eq!(run, "java -jar target/petclinic-3.1.jar --server.address=127.0.0.1 --server.port=$PORT");
    assert!(notes.contains("mvn package"), "{notes}");
}

#[test]
fn files_of_other_tools_come_first() {
    let both = [("Procfile", "web: ./serve --port $PORT\n"), ("package.json", r#"{"scripts": {"start": "x"}}"#)];
    let proposal = of(both).unwrap();
    assert_eq!((proposal.source.as_str(), run_of(&proposal, "web").0.as_str()), ("Procfile", "./serve --port $PORT"));
    let compose = of([("compose.yaml", "services: { api: { command: ./api --port 80, ports: [\"80\"] } }\n")]).unwrap();
    assert_eq!(run_of(&compose, "api").0, "./api --port $PORT");
    assert!(matches!(of([("Procfile", "nonsense\n")]), Err(InitError::Import { file, .. }) if file == "Procfile"));
    assert_eq!(of([("README.md", "hello")]), Err(InitError::Nothing));
}

#[test]
fn what_another_tool_serves_gets_a_goal() {
    let text = of([("Procfile", "web: ./serve --port $PORT\nworker: ./work\nrelease: ./migrate\n")]).unwrap().text;
    let spec = parse(&text, "/srv/shop/weal.toml", &MACHINE).unwrap().spec;
    assert_eq!(spec.apps["web"].routes[0].class.as_str(), "web", "{text}");
    assert!(spec.classes["web"].goal.is_some() && !text.contains("Add goals"), "{text}");
    assert!(!text.contains(" ,"), "{text}");
    let silent = of([("Procfile", "worker: ./work\n")]).unwrap().text;
    assert!(!silent.contains("class") || silent.contains("Add goals"), "a class that no route uses: {silent}");
}

#[test]
fn a_command_alone_is_enough() {
    let words = ["node", "a \"b\".js", "$PORT"].map(str::to_owned);
    assert_eq!(run_of(&of_command(&words, "42 Towels"), "towels").0, "node a \"b\".js $PORT");
    assert_eq!(app_name(["", "4711"]), "app");
}

#[test]
fn a_whole_config_says_what_was_asked_for() {
    let sketch = Sketch {
        run: vec!["./shop".to_owned()],
        listen: Some("127.0.0.1:9000".to_owned()),
        api: Some("127.0.0.1:9001".to_owned()),
        cwd: Some("/srv/my \"shop\"".to_owned()),
        user: Some("1000".to_owned()),
        goal: Some("p95 < 250ms".to_owned()),
        memory: Some("64MiB".to_owned()),
        most_instances: 3,
        ..Sketch::new("shop")
    };
    let spec = parse(&sketch.whole_config(), "/run/weal.toml", &MACHINE).unwrap().spec;
    let shop = &spec.apps["shop"];
    assert_eq!((spec.listen.port(), spec.api.port(), shop.cwd.as_str()), (9000, 9001, "/srv/my \"shop\""));
    assert_eq!((shop.memory, shop.instances.max, shop.user.as_deref()), (Bytes::mib(64), 3, Some("1000")));
    assert!(spec.classes[&shop.routes[0].class].goal.is_some());
    let plain = parse(&Sketch { run: vec!["x".to_owned()], ..Sketch::new("x") }.whole_config(), "/run/weal.toml", &MACHINE);
    assert!(plain.unwrap().warnings.is_empty());
}
