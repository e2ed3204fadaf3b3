//! sshd and ssh on a port of their own with keys of their own.
//!
//! sshd forks, executes itself and puts a child into a sandbox, so the path is the library's
//! choice; every byte must arrive and every connection must say why it is where it is.

use shunt_tests::apps::{Stage, digest, free_port, have, twice};
use shunt_tests::side::Random;
use std::os::unix::fs::PermissionsExt;

fn key(stage: &Stage, name: &str) {
    let words = ["-q", "-t", "ed25519", "-N", "", "-f", name];
    let start = stage.plain("ssh-keygen").args(words);
    start
        .start()
        .finish(shunt_tests::apps::LONG)
        .expect_ok("ssh-keygen");
}

#[test]
fn ssh() {
    if !have(&["sshd", "ssh", "ssh-keygen"]) {
        return;
    }
    // SAFETY: geteuid cannot fail.
    if unsafe { libc::geteuid() } == 0 {
        // The folder that sshd wants for its unprivileged child; its package makes it at boot.
        std::fs::create_dir_all("/run/sshd").unwrap();
        std::fs::set_permissions("/run/sshd", PermissionsExt::from_mode(0o755)).unwrap();
    }
    twice(|stage| {
        key(stage, "host");
        key(stage, "user");
        let folder = stage.folder.path("");
        let folder = folder.display();
        let port = free_port();
        let config = format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nPidFile none\n\
             AuthorizedKeysFile {folder}/user.pub\nStrictModes no\nUsePAM no\n\
             PasswordAuthentication no\nPermitRootLogin yes\n"
        );
        let config = stage.file("sshd_config", config.as_bytes());
        let start = stage.launch("sshd").args(["-D", "-e", "-f"]).args([config]);
        let server = stage.serve(start, port);
        let input = stage.file("in", &Random::new(1).bytes(3 << 20));
        let words = "-F none -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o BatchMode=yes \
                     -o LogLevel=ERROR -i user -p";
        let words: Vec<&str> = words.split_whitespace().collect();
        let command =
            "cat > \"$OUT\"; echo received; exit 3".replace("$OUT", &format!("{folder}/out"));
        let start =
            stage
                .launch("ssh")
                .args(&words)
                .args([&port.to_string(), "127.0.0.1", &command]);
        let client = start.input(&input).start().finish(shunt_tests::apps::LONG);
        assert_eq!(
            client.ending(),
            "exit 3",
            "{}\n{:?}",
            client.stderr,
            client.hang
        );
        stage.assert_explained("ssh", &client.report);
        let end = server.stop(libc::SIGTERM);
        stage.assert_explained("sshd", &end.report);
        client.stdout + &digest(&stage.folder.path("out"))
    });
}
