//! Every flag of the command line, and what a wrong configuration looks like.

use crate::support;

use std::process::{Command, Output};
use support::{BINARY, Site, text};

fn plain(arguments: &[&str]) -> Output {
    Command::new(BINARY).args(arguments).output().expect("the program runs")
}

#[test]
fn versions_and_help() {
    let short = text(&plain(&["-v"]).stderr);
    assert!(
        short.contains("tidegate version: tidegate/") && short.contains("\nnginx version: nginx/1.31.6\n"),
        "{short}"
    );
    assert!(!short.contains("configure arguments"));
    let long = text(&plain(&["-V"]).stderr);
    assert!(long.contains("\nconfigure arguments: --prefix=") && long.contains(" --with-mail "), "{long}");
    for flag in ["-h", "-?"] {
        let help = text(&plain(&[flag]).stderr);
        assert!(help.contains("Usage: tidegate [-?hvVtTq]") && help.contains("  serve "), "{help}");
    }
}

/// The commands of the overview, which the program writes from its table, and their subcommands.
fn pages() -> Vec<String> {
    let help = text(&plain(&["-h"]).stderr);
    let list = help.split("Commands (each has --help):").nth(1).expect("the commands");
    let commands = list.lines().filter_map(|line| line.split_once(':')).map(|(name, _)| name.trim().to_string());
    let below = ["bench compare", "bench import", "bench worker", "plan cost", "plan fit", "plan regions", "plan day"];
    let all: Vec<String> = commands.chain(below.map(String::from)).collect();
    assert!(all.len() > 15, "{help}");
    all
}

/// The options in the lines of a help text that begin with one.
fn options_of(help: &str) -> Vec<String> {
    let lines = help.lines().filter(|line| line.starts_with("  ") && line.trim_start().starts_with('-'));
    let words = lines.flat_map(|line| line.split(|c: char| !c.is_ascii_alphanumeric() && c != '-'));
    let is_option = |word: &&str| {
        let name = word.trim_start_matches('-');
        let dashes = word.len() - name.len();
        name.starts_with(|c: char| c.is_ascii_alphabetic()) && (dashes == 2 || dashes == 1 && name.len() == 1)
    };
    words.filter(is_option).map(String::from).collect()
}

fn help_of(page: &str) -> String {
    let words: Vec<&str> = page.split(' ').chain(["--help"]).collect();
    text(&plain(&words).stdout)
}

#[test]
fn the_manual_page_has_every_command_and_option() {
    let page = text(&plain(&["reference", "man"]).stdout).replace("\\-", "-");
    let (server, commands) = page.split_once(".SH COMMANDS").expect("commands");
    for option in options_of(&text(&plain(&["-h"]).stderr)) {
        let is_there =
            server.lines().any(|line| line.starts_with(".B") && line.split([' ', '"', ',']).any(|word| word == option));
        assert!(is_there, "{option} is not in:\n{server}");
    }
    for name in pages() {
        let section = commands.split(&format!(".SS {name}\n")).nth(1).unwrap_or_default();
        let section = section.split(".EE\n").next().unwrap_or_default();
        assert!(section.contains("Usage: tidegate"), "{name}:\n{section}");
        for option in options_of(&help_of(&name)) {
            assert!(section.contains(&option), "{name} {option}:\n{section}");
        }
    }
}

#[test]
fn shells_complete_every_command_and_option() {
    const SCRIPT: &str = "source <(\"$0\" completions bash)\nread -ra COMP_WORDS <<<\"tidegate $1\"\n\
                          COMP_CWORD=$((${#COMP_WORDS[@]}-1))\n_tidegate\necho \"${COMPREPLY[@]}\"";
    let complete = |words: &str| {
        let output = Command::new("bash").args(["-c", SCRIPT, BINARY, words]).output().ok()?;
        assert!(output.stderr.is_empty(), "{words}: {}", text(&output.stderr));
        Some(text(&output.stdout).split_whitespace().map(String::from).collect::<Vec<_>>())
    };
    let scripts = ["zsh", "fish"].map(|shell| text(&plain(&["completions", shell]).stdout));
    let offered = |line: String, option: &str| {
        let Some(words) = complete(&line) else { return };
        assert!(words.iter().any(|word| word == option), "{line}: {option} is not in {words:?}");
    };
    for option in options_of(&text(&plain(&["-h"]).stderr)) {
        offered("-".into(), &option);
    }
    for name in pages() {
        offered(name[..name.len() - 1].to_string(), name.split(' ').next_back().expect("a name"));
        let options = options_of(&help_of(&name));
        assert_eq!(options.is_empty(), ["completions", "reference"].contains(&name.as_str()), "{name}");
        for option in options {
            offered(format!("{name} {}", &option[..option.len() - 1]), &option);
            let word = option.trim_start_matches('-');
            for script in &scripts {
                let spellings = [format!("{option}["), format!("-l {word}"), format!("-s '{word}'")];
                assert!(spellings.iter().any(|spelling| script.contains(spelling)), "{name} {option}:\n{script}");
            }
        }
    }
    let Some(words) = complete("serve --print --t") else {
        testkit::missing_peer("bash is not installed");
        return;
    };
    assert_eq!(words, ["--tls"]);
    assert_eq!(complete("lint --level n"), Some(vec!["note".into()]));
    assert_eq!(complete("-s re"), Some(vec!["reopen".into(), "reload".into()]));
    assert_eq!(complete("explain worker_proc"), Some(vec!["worker_processes".into()]));
    assert_eq!(complete("plan cost --loa"), Some(vec!["--loads".into()]));
}

#[test]
fn wrong_flags() {
    for (arguments, want) in [
        (&["-x"][..], "tidegate: invalid option: \"x\""),
        (&["-s", "start"][..], "tidegate: invalid option: \"-s start\""),
        (&["-p"][..], "tidegate: option \"-p\" requires directory name"),
        (&["srve"][..], "tidegate: unknown command \"srve\"\n  = did you mean \"serve\"?"),
    ] {
        let output = plain(arguments);
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output.stderr).starts_with(want), "{}", text(&output.stderr));
    }
}

/// Options that contradict each other, or that a command would ignore, are refused before anything is read or written.
#[test]
fn options_without_an_effect_are_refused() {
    let both = |one: &str, other: &str| format!("options \"{one}\" and \"{other}\" exclude each other");
    let clap = |one: &str, other: &str| format!("the argument '{one}' cannot be used with '{other}'");
    let cases: Vec<(&str, String)> = vec![
        ("--plan -s stop", both("--plan", "-s")),
        ("--plan --explain", both("--plan", "--explain")),
        ("certificates --renew a.test --renew-all", both("--renew", "--renew-all")),
        ("certificates --renew-all --renew a.test", both("--renew", "--renew-all")),
        ("certificates --renew a.test --local-root -", both("--renew", "--local-root")),
        ("certificates --local-root - --renew-all", both("--renew-all", "--local-root")),
        ("certificates --renew a.test --json", both("--renew", "--json")),
        ("certificates --renew-all --within 3", both("--renew-all", "--within")),
        ("certificates --local-root - --json", both("--local-root", "--json")),
        ("certificates -s stop", "option \"-s\" has no meaning".into()),
        ("certificates -t", "option \"-t\" has no meaning".into()),
        ("lint -T", "option \"-T\" has no meaning".into()),
        ("lint --list --format json", both("--list", "--format")),
        ("lint --explain alias-traversal --off alias-traversal", both("--explain", "--off")),
        ("lint --list --explain alias-traversal", both("--list", "--explain")),
        ("diff a b -q", "option \"-q\" has no meaning".into()),
        ("doctor --plan", "option \"--plan\" has no meaning".into()),
        ("doctor -e log", "option \"-e\" has no meaning".into()),
        ("explain /a /b", "a second URL: \"/b\"".into()),
        ("explain /a -t", "option \"-t\" has no meaning".into()),
        ("explain proxy_pass --json", "option \"--json\" is for URLs".into()),
        ("convert apache CONF/nginx.conf --root /a", "option \"--root\" is for .htaccess files".into()),
        ("completions bash zsh", "Usage: tidegate completions".into()),
        ("reference json lint", "Usage: tidegate reference".into()),
        ("serve --tls --domain a.test", "choose one".into()),
        ("serve --email a@a.test", "belong to --domain".into()),
        ("serve a b", "only one directory can be served".into()),
        ("bench http://h/ -r 5 --users 5", clap("--rate <RATE>", "--users <N>")),
        ("bench http://h/ --ramp 1s --warmup 1s", clap("--ramp <TIME>", "--warmup <TIME>")),
        ("bench http://h/ --show --html a", clap("--show", "--html <FILE>")),
        ("bench http://h/ --secret a", "--workers <LIST>".into()),
        ("bench http://127.0.0.1:1/ --calls 2 --pipeline 3", "--pipeline is above the number of requests".into()),
        ("bench compare a --names b,c", "--names has 2 names for 1 file".into()),
        ("lab a.toml --quick --rounds 5", clap("--quick", "--rounds <N>")),
        ("lab none.toml", "none.toml: No such file".into()),
        ("top http://127.0.0.1:1/ --probe /a --probes 0", "--probe needs --probes above 0".into()),
        ("plan cost a.csv --loads 1k --server b", "--measured <REPORT>".into()),
        ("plan cost a.csv --loads 1k --traffic 0.1", "--traffic needs --response-bytes".into()),
        ("plan cost a.csv --loads 1k --sibling-yield 0.5", "--measured <REPORT>".into()),
    ];
    let site = Site::new("", "");
    let conf = site.path("conf").display().to_string();
    for (line, want) in cases {
        let words: Vec<String> = line.split(' ').map(|word| word.replace("CONF", &conf)).collect();
        let output = Command::new(BINARY).args(words).current_dir(site.path("conf")).output().expect("it runs");
        let said = text(&output.stderr);
        assert!(
            matches!(output.status.code(), Some(1 | 2)) && said.contains(&want),
            "{line}: {:?} {said}",
            output.status
        );
        assert!(output.stdout.is_empty(), "{line}: {}", text(&output.stdout));
    }
}

/// The server takes relative names from the prefix, as nginx does. Commands that only read also find a file beside the caller.
#[test]
fn commands_find_a_configuration_of_the_current_directory() {
    let site = Site::new("", "http { server { listen 127.0.0.1:1; } }");
    let run = |words: &str| {
        let words = words.split(' ').chain(["-c", "nginx.conf"]);
        site.command(&words.collect::<Vec<_>>()).current_dir(site.path("conf")).output().expect("it runs")
    };
    for words in ["lint", "explain http://127.0.0.1:1/", "certificates"] {
        let output = Command::new(BINARY)
            .args(words.split(' ').chain(["-c", "nginx.conf", "-p", site.path("").to_str().expect("a path")]))
            .current_dir(site.path("conf"))
            .output()
            .expect("it runs");
        assert_eq!(output.status.code(), Some(0), "{words}: {}", text(&output.stderr));
    }
    let tested = run("-t");
    assert!(!tested.status.success() && text(&tested.stderr).contains("failed (2: No such file"), "as in nginx");
}

/// As in nginx, `-t` goes before `-s`: nothing is signalled.
#[test]
fn a_test_sends_no_signal() {
    let site = Site::new("daemon off;", "");
    let running = site.start();
    for signal in ["stop", "quit"] {
        let output = site.run(&["-t", "-s", signal]);
        assert!(output.status.success() && text(&output.stderr).contains("test is successful"), "{signal}");
    }
    site.run(&["-s", "reopen"]);
    site.wait_for_log("reopening logs", 1);
    assert!(!site.log().contains("shutting down"), "{}", site.log());
    running.quit();
}

#[test]
fn a_test_that_succeeds() {
    let site = Site::new("worker_processes 2;", "");
    let output = site.run(&["-t"]);
    let name = site.path("conf/nginx.conf").display().to_string();
    let want = format!(
        "tidegate: the configuration file {name} syntax is ok\ntidegate: configuration file {name} test is successful\n"
    );
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), want));
    let quiet = site.run(&["-tq"]);
    assert_eq!((quiet.status.code(), text(&quiet.stderr)), (Some(0), String::new()));
    assert!(site.pid().is_none());
    // nginx takes it, too.
    let none = Site::new("worker_processes 0;", "").run(&["-t"]);
    assert_eq!(none.status.code(), Some(0), "{}", text(&none.stderr));
}

#[test]
fn a_dump_has_every_file_once() {
    let site = Site::new("include extra.conf;\ninclude extra/*.conf;", "");
    std::fs::create_dir(site.path("conf/extra")).expect("a directory");
    site.write("conf/extra.conf", "worker_priority 0;");
    site.write("conf/extra/a.conf", "worker_shutdown_timeout 1s;\n");
    let output = site.run(&["-T"]);
    let dump = text(&output.stdout);
    let conf = site.path("conf").display().to_string();
    let want = format!(
        "# configuration file {conf}/nginx.conf:\n{}\n# configuration file {conf}/extra.conf:\nworker_priority 0;\n\
         # configuration file {conf}/extra/a.conf:\nworker_shutdown_timeout 1s;\n\n",
        site.read("conf/nginx.conf")
    );
    assert_eq!(dump, want);
}

#[test]
fn errors_have_nginxs_first_line() {
    for (main, rest, line, want) in [
        ("foo;", "", 2, "unknown directive \"foo\""),
        ("pid a; pid b;", "", 2, "\"pid\" directive is duplicate"),
        ("worker_processes no;", "", 2, "\"worker_processes\" directive invalid value"),
        ("worker_cpu_affinity 012;", "", 2, "invalid character \"2\" in \"worker_cpu_affinity\""),
        ("thread_pool p;", "", 2, "invalid number of arguments in \"thread_pool\" directive"),
        ("thread_pool p max_queue=3;", "", 2, "\"thread_pool\" must have \"threads\" parameter"),
        ("thread_pool p threads=1; thread_pool p threads=2;", "", 2, "duplicate thread pool \"p\""),
        ("error_log x loud;", "", 2, "invalid log level \"loud\""),
        ("worker_connections 1;", "", 2, "\"worker_connections\" directive is not allowed here"),
        ("daemon yes;", "", 2, "invalid value \"yes\" in \"daemon\" directive, it must be \"on\" or \"off\""),
        (
            "ssl_engine x;",
            "",
            2,
            "\"ssl_engine\" directive is not supported: keys are read from files, not from OpenSSL engines",
        ),
        ("", "events { }", 4, "\"events\" directive is duplicate"),
        ("", "http {\nmirror off;\nmirror /a; }", 6, "\"mirror\" directive is duplicate"),
        ("", "http {\nproxy_redirect / /a;\nproxy_redirect off; }", 6, "\"proxy_redirect\" directive is duplicate"),
        (
            "",
            "http { server { listen 127.0.0.1:1; location / { root /a;\nalias /b; } } }",
            5,
            "\"alias\" directive is duplicate, \"root\" directive was specified earlier",
        ),
        (
            "",
            "http { server { listen 127.0.0.1:1; location / { proxy_redirect default;\nproxy_pass http://127.0.0.1; } } }",
            4,
            "\"proxy_redirect default\" should be placed after the \"proxy_pass\" directive",
        ),
        ("", "http { server { listen 127.0.0.1:1; if ($uri ~ (?<uri>a)) { } } }", 4, "the duplicate \"uri\" variable"),
        (
            "",
            "http { proxy_cache_path c keys_zone=C:1m; server { listen 127.0.0.1:1;\nlocation / { proxy_cache C; \
             proxy_cache_purge PURGE from 127.0.0.1; proxy_pass http://127.0.0.1; } } }",
            5,
            "\"proxy_cache_purge\" with a constant would purge with every request",
        ),
        // Other forms of the module ngx_cache_purge, and its zones.
        (
            "",
            "http { server { listen 127.0.0.1:1; location / {\nscgi_cache_purge on; } } }",
            5,
            "\"scgi_cache_purge\" with a constant would purge with every request",
        ),
        (
            "",
            "http { server { listen 127.0.0.1:1; location / {\nfastcgi_cache_purge PURGE purge_all from all; } } }",
            5,
            "\"fastcgi_cache_purge\" with a constant would purge with every request",
        ),
        (
            "",
            "http { server { listen 127.0.0.1:1; location / {\nuwsgi_cache_purge none $uri; } } }",
            5,
            "\"uwsgi_cache_purge\" zone \"none\" is unknown",
        ),
        (
            "",
            "http { proxy_cache_path c keys_zone=C:1m; server { listen 127.0.0.1:1;\nproxy_cache_purge C $uri; } }",
            5,
            "\"proxy_cache_purge\" with a zone and a key is not allowed here",
        ),
        (
            "",
            "http { proxy_cache_path c keys_zone=C:1m; server { listen 127.0.0.1:1; location / {\n\
             proxy_cache_purge C $uri; proxy_pass http://127.0.0.1; } } }",
            4,
            "\"proxy_cache_purge\" is incompatible with another handler of the location",
        ),
        (
            "",
            "stream { server { listen 127.0.0.1:1;\n\nproxy_pass localhost; } }",
            6,
            "no port in upstream \"localhost\"",
        ),
        (
            "",
            "stream { server { listen 127.0.0.1:1;\nproxy_pass a:99999; } }",
            5,
            "invalid port in upstream \"a:99999\"",
        ),
        ("", "include none.conf;", 4, "open() \"CONF/none.conf\" failed (2: No such file or directory)"),
        ("", "http { ", 5, "unexpected end of file, expecting \"}\""),
    ] {
        let site = Site::new(main, rest);
        let output = site.run(&["-t"]);
        let conf = site.path("conf").display().to_string();
        let want = want.replace("CONF", &conf);
        let first = format!("tidegate: [emerg] {want} in {conf}/nginx.conf:{line}");
        let words = text(&output.stderr);
        assert_eq!(
            (output.status.code(), words.lines().next()),
            (Some(1), Some(first.as_str())),
            "{main}{rest}: {words}"
        );
        assert_eq!(
            words.lines().last(),
            Some(format!("tidegate: configuration file {conf}/nginx.conf test failed").as_str())
        );
        assert!(site.log().contains(&format!(": {want} in ")), "the log has it, too: {}", site.log());
    }
}

#[test]
fn whole_configurations_that_lack_something() {
    let site = Site::new("", "");
    site.write("conf/nginx.conf", "daemon off;");
    let words = text(&site.run(&["-t"]).stderr);
    assert!(words.contains("syntax is ok\ntidegate: [emerg] no \"events\" section in configuration\n"), "{words}");
    let explained = text(&site.run(&["-t", "--explain"]).stderr);
    assert!(explained.contains("  = write \"events { }\", which may be empty\n"), "{explained}");
    let named =
        site.command(&["-t", "--explain", "-c", "nginx.conf"]).current_dir(site.path("conf")).output().expect("runs");
    let hint = format!("did you mean -c {}?", site.path("conf/nginx.conf").display());
    assert!(text(&named.stderr).contains(&hint), "{}", text(&named.stderr));
    let words = text(&site.run(&["-t", "-c", "none.conf"]).stderr);
    let name = site.path("none.conf").display().to_string();
    assert!(words.contains(&format!("[emerg] open() \"{name}\" failed (2: No such file or directory)")), "{words}");
}

#[test]
fn explaining_shows_every_error_in_its_line() {
    let site = Site::new("worker_proceses 2;\nuser;", "");
    let words = text(&site.run(&["-t", "--explain"]).stderr);
    assert!(
        words.contains("2 | worker_proceses 2;\n  | ^^^^^^^^^^^^^^^\n  = did you mean \"worker_processes\"?"),
        "{words}"
    );
    assert!(
        words.contains("invalid number of arguments in \"user\" directive") && words.contains("2 errors"),
        "{words}"
    );
}

#[test]
fn directives_on_the_command_line() {
    let site = Site::new("", "");
    let words = text(&site.run(&["-t", "-g", "foo;"]).stderr);
    assert!(words.starts_with("tidegate: [emerg] unknown directive \"foo\" in command line\n"), "{words}");
    let output = site.run(&["-t", "-g", "pid logs/other.pid;"]);
    assert!(output.status.success());
    assert!(site.path("logs/other.pid").exists(), "as in nginx, -t creates the pid file");
}

#[test]
fn an_error_log_that_cannot_be_opened() {
    let site = Site::new("", "");
    let words = text(&site.run(&["-t", "-e", "/none/such/log"]).stderr);
    let want = "tidegate: [alert] could not open error log file: open() \"/none/such/log\" failed (2: No such file or \
                directory)\n";
    assert!(words.starts_with(want), "{words}");
    site.write("conf/nginx.conf", "error_log /none/such/log; events { }");
    let output = site.run(&["-t"]);
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("[emerg] open() \"/none/such/log\" failed (2: No such file or directory)\n"));
}

#[test]
fn warnings_do_not_fail_a_test() {
    let site = Site::new("load_module modules/ngx_stream_module.so;", "");
    site.write("conf/nginx.conf", "load_module modules/ngx_foo_module.so;\nevents { debug_connection 127.0.0.1; }");
    let output = site.run(&["-t"]);
    let words = text(&output.stderr);
    assert!(output.status.success() && words.contains("\"debug_connection\" is ignored"), "{words}");
    assert!(words.contains("[warn] \"load_module\" is ignored: not available: ngx_foo_module in "), "{words}");
    let lines = ["ngx_stream_module", "ngx_mail_module", "a", "b", "c", "d", "a"];
    let lines: String = lines.iter().map(|name| format!("load_module modules/{name}.so;\n")).collect();
    site.write("conf/nginx.conf", &format!("{lines}events {{ }}"));
    let words = text(&site.run(&["-t"]).stderr);
    assert!(
        words.contains("is ignored: 2 of the modules are built in; not available: a, b, c and 1 more in "),
        "{words}"
    );
    assert_eq!(words.matches("load_module").count(), 1, "one line for all modules: {words}");
}

#[test]
fn the_plan_names_the_place_of_every_value() {
    let site = Site::new("worker_processes 3;", "");
    let output = site.run(&["-t", "--plan"]);
    let plan = text(&output.stdout);
    let conf = site.path("conf/nginx.conf").display().to_string();
    let line = |start: &str| plan.lines().find(|line| line.starts_with(start)).unwrap_or_default().to_string();
    assert!(line("worker_processes 3;").ends_with(&format!("# {conf}:2")), "{plan}");
    assert!(line("    worker_connections 512;").ends_with("# default"), "{plan}");
}

#[test]
fn explanations_and_suggestions() {
    let output = plain(&["explain", "worker_processes", "events"]);
    let words = text(&output.stdout);
    assert!(output.status.success() && words.contains("number | auto") && words.contains("events { ... }"), "{words}");
    let output = plain(&["explain", "worker_proceses"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("did you mean \"worker_processes\"?"));
    assert!(text(&plain(&["explain", "$request_uri"]).stdout).starts_with("$request_uri\n"));
    assert!(text(&plain(&["explain", "$http_referer"]).stdout).starts_with("$http_NAME\n"));
    assert!(text(&plain(&["explain", "$request_ury"]).stderr).contains("did you mean \"$request_uri\"?"));
    let inside = plain(&["explain", "dns_hook"]);
    assert!(text(&inside.stderr).contains("block acme_issuer: tidegate explain acme_issuer"), "{inside:?}");
    for command in ["serve", "explain", "bench", "lab", "plan", "reference", "completions"] {
        let help = text(&plain(&[command, "--help"]).stdout);
        assert!(help.contains("Usage: tidegate"), "{command}: {help}");
        assert_eq!(help, text(&plain(&["help", command]).stdout));
    }
    assert!(text(&plain(&["help", "plan", "cost"]).stdout).contains("Usage: tidegate plan cost"));
}

#[test]
fn a_directive_that_is_left_out_for_a_reason() {
    let site = Site::new("", "http { perl_modules lib; server { listen 127.0.0.1:1; } }");
    let words = text(&site.run(&["-t", "--explain"]).stderr);
    assert!(words.contains("\"perl_modules\" directive is not supported"), "{words}");
    assert!(words.contains("is not supported: there is no Perl interpreter"), "{words}");
}

#[test]
fn a_variable_of_another_block() {
    let site = Site::new("", "stream { server { listen 127.0.0.1:1; return $upstream_trailer_x; } }");
    let words = text(&site.run(&["-t", "--explain"]).stderr);
    assert!(words.contains("unknown \"upstream_trailer_x\" variable"), "{words}");
    assert!(words.contains("  = this variable exists in the http block only\n"), "{words}");
}

#[test]
fn a_signal_for_a_server_that_does_not_run() {
    let site = Site::new("", "");
    let output = site.run(&["-s", "reload"]);
    let name = site.path("logs/nginx.pid").display().to_string();
    assert_eq!(output.status.code(), Some(1));
    let want = format!("tidegate: [error] open() \"{name}\" failed (2: No such file or directory)\n");
    assert_eq!(text(&output.stderr), want);
    site.write("logs/nginx.pid", "\n");
    assert!(text(&site.run(&["-s", "stop"]).stderr).contains("[error] invalid PID number \"\" in \""));
}

#[test]
fn protocols_that_the_lines_of_an_address_disagree_about() {
    let servers = "http { server { listen 127.0.0.1:1; }\nserver { listen 127.0.0.1:1 proxy_protocol; server_name b; }\n\
                   server { listen 127.0.0.1:1 http2; server_name c; } }";
    let site = Site::new("", servers);
    let words = text(&site.run(&["-t"]).stderr);
    let name = site.path("conf/nginx.conf").display().to_string();
    let want = format!("tidegate: [warn] protocol options redefined for 127.0.0.1:1 in {name}:6\n");
    assert!(words.contains(&want), "{words}");
    assert_eq!(words.matches("redefined").count(), 1, "{words}");
}

/// Directives without effect are noted on request, without a warning.
#[test]
fn directives_without_an_effect_say_so() {
    let words = text(&plain(&["explain", "timer_resolution", "aio_write"]).stdout);
    assert_eq!(words.matches("accepted, no effect").count(), 2, "{words}");
    assert!(words.contains("without a system call") && words.contains("no room for unwritten pages"), "{words}");
    let site = Site::new("timer_resolution 100ms;", "http { aio_write on; server { listen 127.0.0.1:1; } }");
    let output = site.run(&["-tq"]);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
    let words = text(&Site::new("timer_resolution soon;", "").run(&["-t"]).stderr);
    assert!(words.contains("\"timer_resolution\" directive invalid value"), "{words}");
}

/// Reports first the error that nginx 1.31 reports first: of lines, then of blocks, then of servers, then of variables,
/// and undeclared zones last.
#[test]
fn the_first_of_several_errors_is_nginxs() {
    const VARIABLE: &str = "server { listen 127.0.0.1:1; return 200 $nosuch; }";
    const ZONE: &str = "server { listen 127.0.0.1:2; limit_req zone=z; }";
    const CACHE: &str = "server { listen 127.0.0.1:3; location / { proxy_pass http://127.0.0.1; proxy_cache c; } }";
    const TWICE: &str = "server { listen 127.0.0.1:4; location /a { } location /a { } }";
    const CERTIFICATE: &str = "server { listen 127.0.0.1:5 ssl; }";
    const LOG: &str = "access_log /none/such/log;";
    const LINES: [(&str, &str); 3] = [
        ("foo 1;", "unknown directive \"foo\" in "),
        ("gzip on off;", "invalid number of arguments in \"gzip\" directive in "),
        ("server { listen 127.0.0.1:6; return 1000; }", "invalid return code \"1000\" in "),
    ];
    let mut pairs = vec![
        (CACHE, VARIABLE, "\"proxy_cache\" zone \"c\" is unknown in "),
        (TWICE, VARIABLE, "duplicate location \"/a\" in "),
        (TWICE, CERTIFICATE, "duplicate location \"/a\" in "),
        (CERTIFICATE, VARIABLE, "no \"ssl_certificate\" is defined for the \"listen ... ssl\" directive in "),
        (CACHE, CERTIFICATE, "\"proxy_cache\" zone \"c\" is unknown in "),
        (CACHE, LOG, "\"proxy_cache\" zone \"c\" is unknown in "),
        (VARIABLE, LOG, "unknown \"nosuch\" variable\n"),
        (VARIABLE, ZONE, "unknown \"nosuch\" variable\n"),
        (CACHE, ZONE, "\"proxy_cache\" zone \"c\" is unknown in "),
        (CERTIFICATE, ZONE, "no \"ssl_certificate\" is defined for the \"listen ... ssl\" directive in "),
    ];
    for (line, words) in LINES {
        pairs.extend([VARIABLE, ZONE, CACHE, TWICE, CERTIFICATE, LOG].map(|later| (line, later, words)));
    }
    for (first, second, want) in pairs {
        for (one, other) in [(first, second), (second, first)] {
            let site = Site::new("", &format!("http {{\n{one}\n{other}\n}}"));
            let words = text(&site.run(&["-t"]).stderr);
            let error = words.split_once("[emerg] ").map_or("", |(_, rest)| rest);
            assert!(error.starts_with(want), "{one} | {other}: {words}");
        }
    }
}

/// Scripts that call `nginx` get nginx's lines.
#[test]
fn under_the_name_of_nginx() {
    let site = Site::new("daemon off;", "http { server { listen 127.0.0.1:0; } }");
    let called = site.path("nginx");
    std::os::unix::fs::symlink(BINARY, &called).expect("a link");
    let run = |arguments: &[&str]| {
        Command::new(&called).arg("-p").arg(&site.dir).args(arguments).output().expect("the program runs")
    };
    assert!(text(&run(&["-v"]).stderr).starts_with("nginx version: nginx/1."));
    assert!(text(&plain(&["-v"]).stderr).starts_with("tidegate version: "));
    site.write("conf/nginx.conf", "daemon off; error_log logs/error.log; events { }");
    let tested = text(&run(&["-t"]).stderr);
    assert!(tested.starts_with("nginx: the configuration file ") && !tested.contains("tidegate: "), "{tested}");
    let wrong = text(&run(&["-t", "-g", "foo;"]).stderr);
    assert!(wrong.starts_with("nginx: [emerg] unknown directive \"foo\" in command line\n"), "{wrong}");
    let mut child = Command::new(&called).arg("-p").arg(&site.dir).spawn().expect("the program starts");
    let title = |pid: u32| std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    support::wait("the master's title", || match title(child.id()) {
        title if title.starts_with(b"nginx: master process ") => Ok(()),
        title => Err(String::from_utf8_lossy(&title).into_owned()),
    });
    let children = || std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", child.id())).unwrap_or_default();
    support::wait("the worker's title", || {
        let titles: Vec<_> = children().split_whitespace().filter_map(|pid| pid.parse().ok()).map(title).collect();
        if titles.iter().any(|title| title.starts_with(b"nginx: worker process")) { Ok(()) } else { Err(children()) }
    });
    support::signal(child.id(), "QUIT");
    assert!(child.wait().expect("it ends").success(), "{}", site.log());
}

#[test]
fn a_log_that_is_not_used_is_no_complaint() {
    let site = Site::new("", "");
    site.write("conf/nginx.conf", "error_log own.log; pid own.pid; events { }");
    std::fs::remove_dir_all(site.path("logs")).expect("removed");
    let words = text(&site.run(&["-t"]).stderr);
    assert!(words.contains("test is successful") && !words.contains("could not open"), "{words}");
    site.write("conf/nginx.conf", "pid own.pid; events { }");
    let words = text(&site.run(&["-t"]).stderr);
    assert!(words.contains("[alert] could not open error log file: open() \""), "{words}");
}

#[test]
fn version_output_has_the_lines_of_tools() {
    let long = text(&plain(&["-V"]).stderr);
    for option in [" --http-log-path=/", " --modules-path=/", " --error-log-path=/", " --pid-path=/"] {
        assert!(long.contains(option), "{option}: {long}");
    }
    let words = text(&plain(&["explain", "http.server"]).stderr);
    assert!(words.contains("a directive is named without the blocks around it: tidegate explain server"), "{words}");
}

/// Warnings that concern a test or a start are not logged at every reload.
#[test]
fn a_reload_does_not_repeat_what_a_start_says() {
    let site = Site::new("daemon off; load_module modules/ngx_foo_module.so;", "");
    let running = site.start();
    assert_eq!(site.log().matches("\"load_module\" is ignored").count(), 1, "{}", site.log());
    for times in 1..=2 {
        running.signal("HUP");
        site.wait_for_log("its work has exited with code 0", times);
    }
    running.quit();
    assert_eq!(site.log().matches("\"load_module\" is ignored").count(), 1, "{}", site.log());
}

#[test]
fn a_test_finds_folders_that_a_start_cannot_create() {
    let cache =
        |path: &str| format!("http {{ proxy_cache_path {path} keys_zone=c:1m; server {{ listen unix:socket; }} }}");
    let site = Site::new("", &cache("none/such"));
    let output = site.run(&["-t"]);
    let words = text(&output.stderr);
    let line = format!(
        "tidegate: [emerg] mkdir() \"{}\" failed (2: No such file or directory)\n",
        site.path("none/such").display()
    );
    assert!(!output.status.success() && words.contains(&line), "{words}");
    // Requests whose bodies stay in memory do not need it.
    site.configure("", "http { client_body_temp_path none/such; server { listen unix:socket; } }");
    let output = site.run(&["-t"]);
    let words = text(&output.stderr);
    assert!(output.status.success() && words.contains(&line.replace("[emerg]", "[warn]")), "{words}");
    site.configure("", &cache("cache"));
    assert!(site.run(&["-t"]).status.success());
    assert!(!site.path("cache").exists(), "a test creates no folder");
}

#[test]
fn errors_of_directives_on_the_command_line_are_nginxs() {
    let site = Site::new("", "");
    site.write("conf/more.conf", "worker_processes 3;\n");
    for (globals, want) in [
        ("worker_processes 2", "unexpected end of parameter, expecting \";\" in command line"),
        ("user \"a", "unexpected end of parameter, expecting \";\" in command line"),
        ("events {", "block directives are not supported in -g option in command line"),
        ("events { }", "block directives are not supported in -g option in command line"),
        ("foo; events { }", "unknown directive \"foo\" in command line"),
    ] {
        let output = site.run(&["-t", "-g", globals]);
        let words = text(&output.stderr);
        assert!(words.starts_with(&format!("tidegate: [emerg] {want}\n")), "{globals}: {words}");
        assert!(!output.status.success());
    }
    let output = site.run(&["-t", "-g", "include none.conf;"]);
    let path = site.path("conf/none.conf");
    let line = format!("open() \"{}\" failed (2: No such file or directory) in command line\n", path.display());
    assert!(text(&output.stderr).contains(&line), "{}", text(&output.stderr));
    let output = site.run(&["-T", "-g", "include more.conf;"]);
    assert!(output.status.success() && text(&output.stdout).contains("more.conf:\nworker_processes 3;\n"));
    // The included line counts.
    let output = site.run(&["-t", "-g", "include more.conf; worker_processes 3;"]);
    assert!(text(&output.stderr).contains("\"worker_processes\" directive is duplicate in command line"));
}
