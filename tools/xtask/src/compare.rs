//! `cargo xtask compare`: generated comparisons with a real nginx.

use crate::oracle;
use crate::server_program::build_server;
use cases::Over;
use compare::{Binary, Mode, Plan};
use std::path::{Path, PathBuf};
use std::process::Command;

pub const HELP: &str = "\
Usage: cargo xtask compare [OPTIONS]

Generates configurations and requests, sends them to Tidegate and to nginx, and compares responses, logs
and the output of -t. Reduces each difference to the directives that cause it.

  --seed N          first seed (default: 1)
  --count N         number of configurations (default: 500)
  --only TEXT       use only directives whose lines contain TEXT
  --with TEXT       use a line that contains TEXT in every configuration
  --differences N   stop after N differences (default: 20)

Subject (default: the http block over HTTP/1.1):

  --h2c             send the requests over HTTP/2 in cleartext
  --h3              send them over HTTP/3
  --stream          the stream block
  --mail            the mail block
  --tls             TLS handshakes and client certificates
  --sni             several servers on one TLS address
  --frames          frames of HTTP/2 from clients
  --upstream-frames frames of HTTP/2 from upstream servers
  --groups          upstream groups whose servers fail
  --caches          stored responses over time
  --connections     valid and broken requests over one connection
  --gateways        FastCGI, SCGI, uwsgi and memcached
  --peers           upstream servers over HTTP/2, gRPC and TLS
  --documents       filters that rewrite generated documents
  --apache          .htaccess files and virtual hosts, with Apache (/usr/sbin/apache2) instead of nginx
  --check           -t alone, for the example of each directive with a wrong word
  --mutate          in addition: a typing mistake in one directive

Programs:

  --source DIR      nginx's source, which is built once (default: NGINX_SOURCE from the environment)
  --nginx FILE      nginx's binary (default: /usr/sbin/nginx)
  --ours FILE       Tidegate's binary (default: the debug build of this checkout)
  --in-ci           succeed without a comparison if no usable nginx is installed

  cargo xtask compare --seed 1000 --count 200 --stream
";

/// In `cargo xtask ci`: enough to notice, little enough not to be noticed.
pub const CI: &[&str] = &["--seed", "1", "--count", "60"];
pub const APACHE_CI: &[&str] = &["--apache", "--seed", "1", "--count", "40", "--differences", "5"];
pub const STREAM_CI: &[&str] = &["--stream", "--seed", "1", "--count", "12"];

/// The oldest supported version: Debian's. Directives that it lacks or treats differently are left out (`pool.rs`).
const OLDEST: (u32, u32) = (1, 22);

pub fn run_compare(arguments: &[String]) -> Result<(), String> {
    let (mut seed, mut count, mut only, mut with, mut ours) = (1, 500, None, None, None);
    let (mut source, mut nginx, mut differences_max, mut in_ci) = (None, None, 20, false);
    let (mut mode, mut over, mut mutate) = (Mode::Http, Over::H1, false);
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().cloned().ok_or(format!("{word} wants a value"));
        let number = |text: String| text.parse::<u64>().map_err(|_| format!("\"{text}\" is no number"));
        match word.as_str() {
            "--seed" => seed = number(value()?)?,
            "--count" => count = number(value()?)?,
            "--differences" => differences_max = number(value()?)? as usize,
            "--only" => only = Some(value()?),
            "--with" => with = Some(value()?),
            "--ours" => ours = Some(PathBuf::from(value()?)),
            "--source" => source = Some(PathBuf::from(value()?)),
            "--nginx" => nginx = Some(PathBuf::from(value()?)),
            "--h2c" => over = Over::H2c,
            "--h3" => over = Over::H3,
            "--stream" => mode = Mode::Stream,
            "--mail" => mode = Mode::Mail,
            "--mutate" => mutate = true,
            "--sni" => mode = Mode::Sni,
            "--tls" => mode = Mode::Tls,
            "--frames" => mode = Mode::Frames,
            "--upstream-frames" => mode = Mode::UpstreamFrames,
            "--groups" => mode = Mode::Groups,
            "--caches" => mode = Mode::Caches,
            "--connections" => mode = Mode::Connections,
            "--gateways" => mode = Mode::Gateways,
            "--peers" => mode = Mode::Peers,
            "--documents" => mode = Mode::Documents,
            "--check" => mode = Mode::Check,
            "--apache" => mode = Mode::Apache,
            "--in-ci" => in_ci = true,
            other => {
                return Err(format!("unknown option \"{other}\"; see cargo xtask compare --help"));
            }
        }
    }
    if mode == Mode::Apache {
        return with_apache(seed, count, differences_max, ours, in_ci);
    }
    let Some(nginx) = oracle::newest_nginx(source.as_deref(), nginx.as_deref())? else {
        if in_ci {
            eprintln!("no nginx here: nothing is compared");
            return Ok(());
        }
        return Err("no nginx: name a checkout of its source with --source, or a binary with --nginx".into());
    };
    let shown = oracle::nginx_version(&nginx).ok_or(format!("{}: no version", nginx.display()))?;
    let mut numbers = shown.trim_start_matches("nginx/").split('.').map(|n| n.parse().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if in_ci && version < OLDEST {
        eprintln!("{shown} is older than what is compared with: nothing is compared (name a checkout in NGINX_SOURCE)");
        return Ok(());
    }
    if in_ci && mode == Mode::Stream && !has_stream(&nginx) {
        eprintln!(
            "{shown} has the stream area as a module to be loaded: nothing is compared (name a checkout in NGINX_SOURCE)"
        );
        return Ok(());
    }
    let ours = match ours {
        Some(ours) => ours,
        None => build_server()?,
    };
    let plan = Plan {
        ours: Binary { path: ours, nginx: false, version, shown: String::new() },
        nginx: Binary { path: nginx, nginx: true, version, shown },
        seed,
        count,
        only,
        with,
        differences_max,
        over,
        mode,
        mutate,
    };
    println!("{}", compare::compare_http(&plan)?);
    Ok(())
}

/// Debian's.
const APACHE: &str = "/usr/sbin/apache2";

fn with_apache(
    seed: u64,
    count: u64,
    differences_max: usize,
    ours: Option<PathBuf>,
    in_ci: bool,
) -> Result<(), String> {
    if !Path::new(APACHE).exists() {
        if in_ci {
            eprintln!("no {APACHE} here: nothing is compared");
            return Ok(());
        }
        return Err(format!("no {APACHE}: install the package apache2"));
    }
    let ours = match ours {
        Some(ours) => ours,
        None => build_server()?,
    };
    let binary = |path: PathBuf| Binary { path, nginx: false, version: (0, 0), shown: "Apache".into() };
    let plan = Plan {
        ours: binary(ours),
        nginx: binary(PathBuf::from(APACHE)),
        seed,
        count,
        only: None,
        with: None,
        differences_max,
        over: Over::H1,
        mode: Mode::Apache,
        mutate: false,
    };
    println!("{}", compare::compare_http(&plan)?);
    Ok(())
}

fn has_stream(nginx: &Path) -> bool {
    let output = Command::new(nginx).arg("-V").output();
    output.is_ok_and(|o| String::from_utf8_lossy(&o.stderr).split_whitespace().any(|word| word == "--with-stream"))
}
