//! Application servers behind the balancer of `examples/app-servers`, one of them killed under load: no request that may be
//! sent twice fails.

use crate::support;

use std::process::Child;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use support::client::Client;
use support::{Site, alive, children, free_port, signal, wait};

/// An application server in its own process, which can be killed.
struct App {
    site: Site,
    port: u16,
    child: Option<Child>,
}

impl App {
    fn new(name: &str) -> App {
        let port = free_port();
        let http =
            format!("http {{ server {{ listen 127.0.0.1:{port}; location / {{ return 200 \"from {name}\"; }} }} }}");
        let mut app = App { site: Site::new("daemon off;", &http), port, child: None };
        app.start();
        app
    }
    fn start(&mut self) {
        self.child = Some(self.site.command(&[]).spawn().expect("it starts"));
        wait("the application", || Client::connect(self.port).map(drop));
    }
    /// As the kernel does it when memory runs out.
    fn kill(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        let workers = wait("a worker", || match children(child.id()) {
            some if some.is_empty() => Err("none"),
            some => Ok(some),
        });
        let _ = child.kill();
        let _ = child.wait();
        workers.into_iter().filter(|w| alive(*w)).for_each(|w| signal(w, "KILL"));
    }
}

impl Drop for App {
    fn drop(&mut self) {
        self.kill();
    }
}

#[test]
fn a_killed_application_server_costs_no_idempotent_request() {
    let mut apps = [App::new("one"), App::new("two"), App::new("three")];
    let port = free_port();
    let example = include_str!("../../../../examples/app-servers/nginx.conf");
    let mut conf = cases::replace_address(example, "127.0.0.1:8080", &format!("127.0.0.1:{port}"));
    for (app, written) in apps.iter().zip(["127.0.0.1:8001", "127.0.0.1:8002", "127.0.0.1:8003"]) {
        conf = cases::replace_address(&conf, written, &format!("127.0.0.1:{}", app.port));
    }
    conf = conf.replace("worker_processes auto;", "worker_processes 2; daemon off;");
    conf = conf.replace("error.log;", "logs/error.log info;").replace("app-servers.pid", "logs/nginx.pid");
    conf = conf.replace("interval=2s", "interval=50ms").replace("slow_start=10s", "slow_start=1s");
    let site = Site::new("", "");
    site.write("conf/nginx.conf", &conf);
    let running = site.start();

    let (stop, served) = (AtomicBool::new(false), AtomicUsize::new(0));
    let errors = Mutex::new(Vec::<String>::new());
    let requests = || {
        let mut client = Client::connect(port)?;
        while !stop.load(Ordering::Relaxed) {
            if client.closing {
                client = Client::connect(port)?;
            }
            match client.get()? {
                (200, body) if body.starts_with("from ") => served.fetch_add(1, Ordering::Relaxed),
                other => return Err(format!("{other:?}")),
            };
        }
        Ok(())
    };
    let load = || {
        if let Err(words) = requests() {
            errors.lock().expect("errors").push(words);
        }
    };
    let more = |n: usize| {
        let goal = served.load(Ordering::Relaxed) + n;
        wait("more requests", || {
            assert_eq!(*errors.lock().expect("errors"), [""; 0], "{}", site.log());
            let now = served.load(Ordering::Relaxed);
            if now >= goal { Ok(()) } else { Err(now) }
        });
    };
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(load);
        }
        more(500);
        let words = format!("127.0.0.1:{} of upstream \"app\" is ", apps[1].port);
        for round in 1..=3 {
            apps[1].kill();
            more(500);
            site.wait_for_log(&format!("{words}unhealthy"), round);
            apps[1].start();
            site.wait_for_log(&format!("{words}healthy"), round);
            more(500);
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(*errors.lock().expect("errors"), [""; 0], "{}", site.log());
    running.quit();
    site.assert_no_alerts();
}
