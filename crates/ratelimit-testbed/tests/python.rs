//! Python packages are fetched once, scripts and services use them.

use ratelimit_testbed::{Application, PYTHON_PACKAGES, Python, Settings, Testbed};
use tokio::net::TcpStream;

async fn python() -> Python {
    Testbed::from_env().python(PYTHON_PACKAGES).await.unwrap_or_else(|error| panic!("{error}"))
}

#[tokio::test]
async fn a_script_runs_with_the_packages() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = folder.path().join("script.py");
    std::fs::write(&script, "import sys, fastapi\nprint(fastapi.__version__, sys.argv[1])").expect("a file");
    let python = python().await;
    assert_eq!(python.run(&script, ["first"]).await.as_deref(), Ok("0.165.0 first\n"));
    std::fs::write(&script, "print('as far as this')\nraise ValueError('broken')").expect("a file");
    let error = python.run(&script, [""; 0]).await.expect_err("it fails");
    for part in ["script.py", "exit status: 1", "as far as this", "ValueError: broken"] {
        assert!(error.contains(part), "{error}");
    }
}

#[tokio::test]
async fn a_service_is_started_frozen_and_ended() {
    let folder = tempfile::tempdir().expect("a folder");
    let service = "import fastapi\napp = fastapi.FastAPI()\n@app.get('/ready')\ndef ready(): return 'yes'\n";
    std::fs::write(folder.path().join("service.py"), service).expect("a file");
    let arguments = ["-m", "uvicorn", "service:app", "--port", "<port>", "--app-dir"];
    let mut application = Application {
        program: python().await.program().to_owned(),
        arguments: arguments.map(str::to_owned).to_vec(),
        environment: Vec::new(),
        ready: "/ready".into(),
    };
    application.arguments.push(folder.path().to_string_lossy().into_owned());
    let server = application.clone().start().await.unwrap_or_else(|error| panic!("{error}"));
    server.freeze().await.expect("freeze");
    server.thaw().await.expect("thaw");
    server.kill().await.expect("kill");
    assert!(TcpStream::connect(server.address()).await.is_err(), "it listens after its end");
    server.start().await.unwrap_or_else(|error| panic!("{error}"));
    let address = server.address();
    drop(server);
    assert!(TcpStream::connect(address).await.is_err(), "it listens after its end");
    application.arguments[2] = "no_such_module:app".into();
    let error = application.start().await.expect_err("there is no such module").to_string();
    assert!(error.contains("no_such_module"), "{error}");
}

#[tokio::test]
async fn without_packages_the_error_says_what_to_do() {
    let nothing = Testbed::new(Settings::default()); // nothing may be installed
    let error = nothing.python(["no-such-package==1"]).await.expect_err("there is none").to_string();
    assert!(error.contains("not allowed") && error.contains("no-such-package==1"), "{error}");
    assert!(error.contains("RATELIMIT_INSTALL=1"), "{error}");
}
