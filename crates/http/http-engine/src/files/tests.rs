//! Tests of the file cache with real files.

use super::*;
use std::fs;

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("tidegate-files-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("folder");
    fs::canonicalize(&folder).expect("real path")
}

fn text(path: &Path) -> Option<String> {
    drop_changed();
    let found = look(path.as_os_str().as_bytes()).ok()?;
    found.content.as_ref().map(|c| String::from_utf8_lossy(c).into_owned())
}

#[test]
fn a_change_shows_at_once() {
    let _fd = enable_cache(1 << 20);
    keep_contents(true);
    let folder = folder("change");
    let (file, other) = (folder.join("a.txt"), folder.join("b.txt"));
    assert_eq!(text(&file), None, "missing, and remembered as missing");
    fs::write(&file, "one").expect("write");
    assert_eq!(text(&file).as_deref(), Some("one"));
    let kept = look(file.as_os_str().as_bytes()).expect("found");
    assert!(Rc::ptr_eq(&kept, &look(file.as_os_str().as_bytes()).expect("found")), "the same entry");
    fs::write(&file, "two").expect("write");
    assert_eq!(text(&file).as_deref(), Some("two"));
    fs::write(&other, "three").expect("write");
    fs::rename(&other, &file).expect("rename");
    assert_eq!(text(&file).as_deref(), Some("three"));
    fs::remove_file(&file).expect("remove");
    assert_eq!(text(&file), None);
    fs::remove_dir_all(&folder).expect("clean up");
}

#[test]
fn many_changes_at_once_clear_the_cache() {
    let _fd = enable_cache(1 << 20);
    keep_contents(true);
    let folder = folder("many");
    let (file, other) = (folder.join("a.txt"), folder.join("b.txt"));
    fs::write(&file, "one").expect("write");
    assert_eq!(text(&file).as_deref(), Some("one"));
    for _ in 0..EVENTS_MAX {
        fs::write(&other, "x").expect("write");
    }
    drop_changed();
    assert_eq!(cache_usage(), (0, 0), "all entries are dropped");
    assert_eq!(text(&file).as_deref(), Some("one"));
    fs::write(&file, "two").expect("write");
    // The rest of the old events does not hide this one.
    for _ in 0..16 {
        drop_changed();
    }
    assert_eq!(text(&file).as_deref(), Some("two"));
    fs::remove_dir_all(&folder).expect("clean up");
}

#[test]
fn a_folder_that_is_swapped_takes_its_files_along() {
    let _fd = enable_cache(1 << 20);
    keep_contents(true);
    let top = folder("swap");
    let (live, next) = (top.join("live"), top.join("next"));
    fs::create_dir_all(live.join("x")).expect("folder");
    fs::create_dir_all(next.join("x")).expect("folder");
    fs::write(live.join("x/a"), "old").expect("write");
    fs::write(next.join("x/a"), "new").expect("write");
    assert_eq!(text(&live.join("x/a")).as_deref(), Some("old"));
    fs::rename(&live, top.join("before")).expect("rename");
    fs::rename(&next, &live).expect("rename");
    assert_eq!(text(&live.join("x/a")).as_deref(), Some("new"));
    fs::write(live.join("x/a"), "newer").expect("write");
    assert_eq!(text(&live.join("x/a")).as_deref(), Some("newer"));
    fs::remove_dir_all(&top).expect("clean up");
}

#[test]
fn a_folder_that_is_removed_and_made_again_has_what_it_has_now() {
    let _fd = enable_cache(1 << 20);
    keep_contents(true);
    let top = folder("again");
    let site = top.join("site");
    fs::create_dir_all(site.join("x")).expect("folder");
    fs::write(site.join("x/a"), "old").expect("write");
    assert_eq!(text(&site.join("x/a")).as_deref(), Some("old"));
    assert_eq!(text(&site.join("x/b")), None);
    assert_eq!(text(&site.join("c")), None);
    fs::remove_dir_all(&site).expect("remove");
    fs::create_dir_all(site.join("x")).expect("folder");
    fs::write(site.join("x/b"), "new").expect("write");
    fs::write(site.join("c"), "new").expect("write");
    assert_eq!(text(&site.join("x/a")), None);
    assert_eq!(text(&site.join("x/b")).as_deref(), Some("new"));
    assert_eq!(text(&site.join("c")).as_deref(), Some("new"));
    fs::remove_dir_all(&top).expect("clean up");
}

#[test]
fn a_link_is_followed_anew_each_time() {
    let _fd = enable_cache(1 << 20);
    keep_contents(true);
    let top = folder("link");
    fs::create_dir_all(top.join("v1")).expect("folder");
    fs::create_dir_all(top.join("v2")).expect("folder");
    fs::write(top.join("v1/a"), "1").expect("write");
    fs::write(top.join("v2/a"), "2").expect("write");
    std::os::unix::fs::symlink("v1", top.join("now")).expect("link");
    assert_eq!(text(&top.join("now/a")).as_deref(), Some("1"));
    fs::remove_file(top.join("now")).expect("remove");
    std::os::unix::fs::symlink("v2", top.join("now")).expect("link");
    assert_eq!(text(&top.join("now/a")).as_deref(), Some("2"));
    fs::remove_dir_all(&top).expect("clean up");
}

#[test]
fn memory_is_bounded() {
    let _fd = enable_cache(10 * (ENTRY_BYTES + 1000));
    keep_contents(true);
    let top = folder("bound");
    for n in 0..100 {
        fs::write(top.join(n.to_string()), vec![b'x'; 1000]).expect("write");
    }
    for n in 0..100 {
        assert!(text(&top.join(n.to_string())).is_some());
        assert!(cache_usage().0 <= 10 * (ENTRY_BYTES + 1000));
    }
    assert!(cache_usage().1 <= 10);
    fs::remove_dir_all(&top).expect("clean up");
}

#[test]
fn links_are_refused_from_a_place_on() {
    let folder = folder("links");
    fs::create_dir(folder.join("real")).expect("folder");
    fs::write(folder.join("real/file"), "text").expect("write");
    std::os::unix::fs::symlink("real", folder.join("link")).expect("link");
    std::os::unix::fs::symlink("file", folder.join("real/name")).expect("link");
    let base = folder.as_os_str().as_bytes();
    let code = |path: &str, from: usize, owner: bool| {
        let path = [base, path.as_bytes()].concat();
        match look_without_links(&path, from, owner) {
            Ok(found) => Ok(found.kind),
            Err(e) => Err(e.raw_os_error().unwrap_or(0)),
        }
    };
    let beyond_link = base.len() + "/link".len();
    assert_eq!(code("/real/file", 0, false), Ok(FileKind::File));
    assert!(matches!(code("/link/file", 0, false), Err(libc::ELOOP | libc::ENOTDIR)));
    assert_eq!(code("/link/file", beyond_link, false), Ok(FileKind::File));
    assert_eq!(code("/link/name", beyond_link, false), Err(libc::ELOOP));
    assert_eq!(code("/link/name", beyond_link, true), Ok(FileKind::File), "one owner");
    assert_eq!(code("/real/file/", 0, true), Err(libc::ENOTDIR), "a file is no folder");
    assert_eq!(code("/real/", 0, false), Ok(FileKind::Folder));
    fs::remove_dir_all(&folder).expect("removed");
}

#[test]
fn an_alias_that_ends_with_a_slash_is_seen_to_change() {
    let _fd = enable_cache(1 << 20);
    keep_contents(true);
    let folder = folder("slashes");
    fs::create_dir_all(folder.join("images/deep")).expect("folder");
    for (odd, real) in [("images//a", "images/a"), ("images/.//deep/./a", "images/deep/a"), ("./images//b", "images/b")]
    {
        let (odd, real) = (PathBuf::from(format!("{}/{odd}", folder.display())), folder.join(real));
        fs::write(&real, "one").expect("write");
        assert_eq!(text(&odd).as_deref(), Some("one"));
        assert!(
            knows_path(odd.as_os_str().as_bytes()) && knows_path(real.as_os_str().as_bytes()),
            "one entry for both names"
        );
        fs::write(&real, "two").expect("write");
        assert_eq!(text(&odd).as_deref(), Some("two"));
        fs::remove_file(&real).expect("remove");
        assert_eq!(text(&odd), None);
        fs::write(&real, "three").expect("write");
        assert_eq!(text(&odd).as_deref(), Some("three"));
    }
    fs::remove_dir_all(&folder).expect("clean up");
}

#[test]
fn plain_paths() {
    for (path, want) in [
        ("/a/b", "/a/b"),
        ("/a//b", "/a/b"),
        ("//a", "/a"),
        ("/a/./b/", "/a/b/"),
        ("/a/.", "/a/"),
        ("/a//", "/a/"),
        ("/.well-known/.x", "/.well-known/.x"),
        ("/a/../b", "/a/../b"),
        ("/a/..//./b", "/a/../b"),
        ("a//b", "a/b"),
        ("/", "/"),
        ("", ""),
    ] {
        assert_eq!(String::from_utf8_lossy(&plain(path.as_bytes())), want, "{path}");
    }
}

#[test]
fn only_what_an_error_says_of_the_path_is_remembered() {
    let _fd = enable_cache(1 << 20);
    keep_contents(true);
    let folder = folder("errors");
    // Opening a socket fails with ENXIO, which is not cached: a file that replaces the socket is found.
    let path = folder.join("socket");
    let socket = std::os::unix::net::UnixListener::bind(&path).expect("a socket");
    let bytes = path.as_os_str().as_bytes();
    drop_changed();
    assert_eq!(look(bytes).expect_err("a socket").raw_os_error(), Some(libc::ENXIO));
    assert!(!knows_path(bytes), "not remembered");
    drop(socket);
    let missing = folder.join("missing");
    let missing = missing.as_os_str().as_bytes();
    assert_eq!(look(missing).expect_err("missing").raw_os_error(), Some(libc::ENOENT));
    assert!(knows_path(missing), "remembered until the folder changes");
    fs::remove_dir_all(&folder).expect("clean up");
}

#[test]
fn turning_it_on_again_forgets() {
    let _fd = enable_cache(1 << 20);
    keep_contents(true);
    let folder = folder("again");
    let path = folder.join("a");
    fs::write(&path, "one").expect("write");
    assert!(text(&path).is_some() && knows_path(path.as_os_str().as_bytes()));
    let _fd = enable_cache(1 << 20);
    assert!(!knows_path(path.as_os_str().as_bytes()));
    assert_eq!(cache_usage(), (0, 0));
    fs::remove_dir_all(&folder).expect("clean up");
}

#[test]
fn writes_through_a_map_show_after_the_recheck() {
    let _fd = enable_cache(1 << 20);
    keep_contents(true);
    let folder = folder("map");
    let path = folder.join("a");
    fs::write(&path, "one").expect("write");
    let bytes = path.as_os_str().as_bytes();
    recheck_after(u64::MAX);
    assert_eq!(text(&path).as_deref(), Some("one"));
    let first = look(bytes).expect("found");
    // Unchanged: the check keeps the entry.
    recheck_after(0);
    assert!(Rc::ptr_eq(&first, &look(bytes).expect("found")));
    // Before its event is read, a write looks like one through a memory map.
    recheck_after(u64::MAX);
    fs::write(&path, "two").expect("write");
    assert_eq!(look(bytes).expect("found").content.as_deref(), Some(&b"one"[..]));
    recheck_after(0);
    assert_eq!(look(bytes).expect("found").content.as_deref(), Some(&b"two"[..]));
    recheck_after(u64::MAX);
    fs::remove_dir_all(&folder).expect("clean up");
}

#[test]
fn missing_paths_resolve_no_folder_twice() {
    let _fd = enable_cache(1 << 20);
    keep_contents(true);
    let folder = folder("missing");
    let real = folder.join("real");
    fs::create_dir(&real).expect("folder");
    std::os::unix::fs::symlink(&real, folder.join("link")).expect("link");
    let resolved = |below: &str| {
        let before = RESOLVED.get();
        for name in 0..50 {
            assert_eq!(text(&folder.join(below).join(name.to_string())), None);
        }
        RESOLVED.get() - before
    };
    assert_eq!(resolved("real"), 1, "a watched folder");
    assert_eq!(resolved("link"), 1, "a link, which is not watched");
    assert_eq!(resolved("none"), 0, "a folder that does not exist");
    assert_eq!(resolved("none/none/none"), 0);
    // Files that appear are found in each of them.
    fs::create_dir_all(folder.join("none/none/none")).expect("folders");
    for below in ["real", "link", "none", "none/none/none"] {
        fs::write(folder.join(below).join("new"), below).expect("write");
        assert_eq!(text(&folder.join(below).join("new")).as_deref(), Some(below));
    }
    // A folder that becomes a link is resolved anew, and files behind it are not taken for watched ones.
    fs::rename(&real, folder.join("moved")).expect("rename");
    std::os::unix::fs::symlink(folder.join("none"), &real).expect("link");
    assert_eq!(text(&real.join("new")).as_deref(), Some("none"));
    fs::write(folder.join("none/new"), "again").expect("write");
    assert_eq!(text(&real.join("new")).as_deref(), Some("again"));
    fs::remove_dir_all(&folder).expect("clean up");
}
