//! Starts the server: logs, configuration, sockets, background, pid file (nginx: `main`).

use crate::conf::{self, Config, Invocation};
use crate::confinement;
use crate::keys::Keeper;
use crate::process::background;
use crate::process::control::{self, ControlThread, Orders};
use crate::process::control_api::ControlApi;
use crate::process::listeners::{ListenFailure, Listeners, Purpose, remove_path};
use crate::process::neighbours::Neighbours;
use crate::process::single::Single;
use crate::process::upgrade::{self, Program};
use crate::process::{master, pidfile, reload, signals, supervisor, worker_process};
use crate::{machine_limits, messages, report, say};
use conf_schema::TextStore;
use conf_schema::store::KeyReader;
use conf_syntax::Disk;
use net::Address;
use net::process::{Fork, Signals};
use observe::{ErrorLog, LogFiles, LogTarget, Severity, Sink, os_error};
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::sync::Arc;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    Serve,
    /// `-t`, `-T`: checks the configuration and prints the result.
    Test {
        quiet: bool,
        dump: bool,
        explain: bool,
    },
}

/// Returns the exit code.
/// `control_api` is the address of `-l`, which a test of the configuration does not open.
pub fn start_process(invocation: Invocation, task: Task, arguments: &[OsString], control_api: Option<&str>) -> i32 {
    let test = matches!(task, Task::Test { .. });
    let unopened = open_first_log(&invocation, test);
    if let Some(words) = unopened.as_ref().filter(|_| !test || invocation.error_log_said) {
        eprintln!("{}: {words}", messages::program_name());
    }
    messages::report_bugs();
    let inherited = if test { None } else { upgrade::inherited_listeners() };
    let neighbours = Neighbours::inherited();
    let keeper = Arc::new(Keeper::default());
    // The process of `-t` ends at once, so it reads keys itself.
    let key_reader = (!test).then(|| keeper.clone() as Arc<dyn KeyReader>);
    let reading =
        conf::read_config(&Disk, TextStore { key_reader, ..TextStore::default() }, &invocation, LogFiles::default());
    let style = report::Style::new(matches!(task, Task::Test { explain: true, .. }));
    report::print_warnings(&reading, style);
    let name = invocation.conf_file.display().to_string();
    let config = match reading.config {
        Ok(config) => config,
        Err(failure) => {
            let quiet = !matches!(task, Task::Test { quiet: false, .. });
            report::print_failure(&failure, style, (!quiet && failure.syntax_ok).then_some(name.as_str()));
            if test {
                eprintln!("{}: configuration file {name} test failed", messages::program_name());
            }
            return 1;
        }
    };
    match task {
        Task::Test { quiet, dump, explain } => {
            // The default log is opened only if the configuration names none.
            if let (Some(words), Some(path)) = (unopened.filter(|_| !invocation.error_log_said), &invocation.error_log)
                && config.logs.all().any(|file| file.path == *path)
            {
                eprintln!("{}: {words}", messages::program_name());
            }
            // As nginx's "-q": errors alone.
            if !quiet {
                for words in machine_limits::limit_warnings(&invocation, &config) {
                    say!(Warn, "{words}");
                }
            }
            check_only(&config, &name, quiet, dump, explain)
        }
        Task::Serve => serve(invocation, config, inherited, neighbours, Program::of(arguments), keeper, control_api),
    }
}

/// Opens the log of `-e` or its default, which is used until the configuration names another one. Returns nginx's
/// message if that fails.
pub fn open_first_log(invocation: &Invocation, test: bool) -> Option<String> {
    let level = if test { Severity::Info } else { Severity::Notice };
    let sink = match &invocation.error_log {
        None => Sink::Stderr,
        Some(path) => {
            let file = LogFiles::default().file(path);
            match file.open() {
                Ok(()) => Sink::File(file),
                Err(e) => {
                    let path = path.display();
                    return Some(format!(
                        "[alert] could not open error log file: open() \"{path}\" failed {}",
                        os_error(&e)
                    ));
                }
            }
        }
    };
    if !matches!(sink, Sink::Stderr) {
        messages::set_log(Arc::new(ErrorLog::new(vec![LogTarget { level, sink, format: observe::LineFormat::Text }])));
    }
    None
}

/// `-t`: does all steps of a start and reverts them.
fn check_only(config: &Config, name: &str, quiet: bool, dump: bool, explain: bool) -> i32 {
    if !quiet {
        eprintln!("{}: the configuration file {name} syntax is ok", messages::program_name());
    }
    let works = || {
        if !pidfile::test_pidfile(&config.core.pid) {
            return Err(ListenFailure);
        }
        reload::test_folders(config)?;
        reload::open_logs(&config.logs)?;
        Listeners::open(&config.specs(), 1, &Listeners::default(), Purpose::Test)
    };
    if works().is_err() {
        eprintln!("{}: configuration file {name} test failed", messages::program_name());
        return 1;
    }
    for words in background::settle_tasks(config) {
        eprintln!("{}: [warn] {words}", messages::program_name());
    }
    if !quiet {
        eprintln!("{}: configuration file {name} test is successful", messages::program_name());
    }
    if explain {
        for line in confinement::explain_rules(config) {
            eprintln!("{line}");
        }
    }
    if dump {
        report::dump_files(&config.texts.files);
    }
    0
}

/// Addresses of sockets that a start has opened: a start that fails leaves no paths.
struct NewPaths(Vec<Address>);

impl Drop for NewPaths {
    fn drop(&mut self) {
        self.0.iter().for_each(remove_path);
    }
}

fn serve(
    invocation: Invocation,
    config: Config,
    inherited: Option<Listeners>,
    neighbours: Neighbours,
    program: Program,
    keeper: Arc<Keeper>,
    control_api: Option<&str>,
) -> i32 {
    let is_heir = inherited.is_some();
    worker_process::raise_descriptor_limit();
    let Ok(logs) = reload::open_logs(&config.logs) else { return 1 };
    if reload::make_folders(&config).is_err() {
        return 1;
    }
    reload::commit_logs(logs);
    messages::set_log(config.error_log.clone());
    let old = inherited.unwrap_or_default();
    if control_api.is_some() && !config.core.master_process {
        say!(Emerg, "control: the API of \"-l\" requires a master process, and \"master_process\" is off");
        return 1;
    }
    let Ok(listeners) = Listeners::open(&config.specs(), config.core.workers, &old, Purpose::Serve) else { return 1 };
    let mut new_paths = NewPaths(listeners.new_addresses(&old));
    drop(old);
    let Ok(control_api) = control_api.map(ControlApi::open).transpose() else { return 1 };
    new_paths.0.extend(control_api.as_ref().and_then(ControlApi::new_address));
    say!(Notice, "using the \"epoll\" event method");
    say!(Notice, "{}, in the language of {}", conf::PROGRAM.replace(' ', "/"), crate::version::NGINX);

    let Some(signals) = block_signals(&config) else { return 1 };
    let mut parent = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
    let daemon = config.core.daemon && !is_heir;
    let mut waiting = None;
    if daemon {
        parent = std::process::id() as i32;
        match go_into_background() {
            Ok(Background::Parent(child)) => {
                new_paths.0.clear();
                return i32::from(!child.wait_until_ready());
            }
            Ok(Background::Child(parent)) => waiting = Some(parent),
            Err((call, e)) => {
                say!(Emerg, "{call} failed {}", os_error(&e));
                return 1;
            }
        }
    }
    if !pidfile::write_pid(&config.core.pid) {
        return 1;
    }
    // A service manager reads the pid file when the first process ends.
    waiting.into_iter().for_each(WaitingParent::release);
    new_paths.0.clear();
    // A service manager supervises a new binary from the end of the old one, which tells it.
    if !is_heir {
        supervisor::tell_supervisor(&format!("READY=1\nMAINPID={}", std::process::id()));
    }
    redirect_stderr(&config.error_log);
    messages::leave_terminal();
    report::debug_points(config.core.debug_points);
    if config.core.master_process {
        let standing = master::MasterStanding { parent, is_heir, daemonized: daemon || is_heir };
        return master::run_master(
            invocation,
            config,
            listeners,
            neighbours,
            signals,
            program,
            standing,
            keeper,
            control_api,
        );
    }
    drop(signals);
    keeper.adopt(&config);
    keeper.begin_to_serve();
    if let Ok(Some(door)) = keeper.door() {
        crate::keys::service::install_keys(door);
    }
    let single = Single { pid_file: true, keeper };
    crate::process::facts::install_metrics();
    net::process::watch_memory();
    let refusals = confinement::enter_single(&config);
    control::run_control(ControlThread { invocation, config, listeners, orders: Orders::Signals(single), refusals })
}

fn block_signals(config: &Config) -> Option<Signals> {
    let wanted = if config.core.master_process { signals::MASTER } else { signals::WORKER };
    match Signals::block(wanted) {
        Ok(signals) => Some(signals),
        Err(e) => {
            say!(Emerg, "signalfd() failed {}", os_error(&e));
            None
        }
    }
}

/// The two processes after the fork into the background.
enum Background {
    Parent(StartingChild),
    Child(WaitingParent),
}

/// The child, as its parent sees it: it serves soon.
struct StartingChild(OwnedFd);

impl StartingChild {
    /// Waits until the child has written the pid file. Returns `false` if it ends before.
    fn wait_until_ready(self) -> bool {
        let mut byte = [0];
        loop {
            match rustix::io::read(&self.0, &mut byte) {
                Err(rustix::io::Errno::INTR) => {}
                read => return read.is_ok_and(|n| n == 1),
            }
        }
    }
}

/// The parent, as its child sees it: it waits for the pid file.
struct WaitingParent(OwnedFd);

impl WaitingParent {
    fn release(self) {
        // (A parent that was killed waits no more.)
        let _ = rustix::io::write(&self.0, &[1]);
    }
}

/// Creates a session without a terminal. Errors contain nginx's name for the call.
fn go_into_background() -> Result<Background, (&'static str, std::io::Error)> {
    let (reads, writes) =
        rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(|e| ("pipe()", e.into()))?;
    if let Fork::Parent(_) = net::process::fork_process().map_err(|e| ("fork()", e))? {
        drop(writes);
        return Ok(Background::Parent(StartingChild(reads)));
    }
    drop(reads);
    let named = |call| move |e: rustix::io::Errno| (call, std::io::Error::from(e));
    rustix::process::setsid().map_err(named("setsid()"))?;
    rustix::process::umask(rustix::fs::Mode::empty());
    let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null");
    let null = null.map_err(|e| ("open(\"/dev/null\")", e))?;
    rustix::stdio::dup2_stdin(&null).map_err(named("dup2(STDIN)"))?;
    rustix::stdio::dup2_stdout(&null).map_err(named("dup2(STDOUT)"))?;
    Ok(Background::Child(WaitingParent(writes)))
}

/// Redirects output of libraries to the error log, unless that is the standard error stream.
pub fn redirect_stderr(log: &ErrorLog) {
    let used = observe::STDERR_USED.load(std::sync::atomic::Ordering::Relaxed);
    if used || log.targets().iter().any(|t| matches!(t.sink, Sink::Stderr)) {
        return;
    }
    let file = log.targets().iter().find_map(|t| match &t.sink {
        Sink::File(file) => file.fd(),
        _ => None,
    });
    if let Some(fd) = file
        && let Err(e) = rustix::stdio::dup2_stderr(&*fd)
    {
        say!(Alert, "dup2() of the standard error stream failed {}", os_error(&e.into()));
    }
}
