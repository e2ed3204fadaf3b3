//! What the help of the command says besides its lists of options (`options`).

pub(crate) const EXAMPLES: &str = "\
Examples:
  shunt run -- ./server --port 7000           shared memory wherever the other end has Shunt too
  shunt run --report out.json -- ./client     and a line of JSON about its connections at the end
  shunt run --transport tcp -- ./client       the library is loaded but leaves TCP to the kernel
  shunt stat                                  connections of running programs, and why any is on TCP
  shunt demote 1234                           send those of one program back to kernel TCP, live
  shunt rules check FILE                      show a file of rules as it is understood, and what is wrong in it
  shunt portmap                               tell clients on other hosts which servers here take iWARP

Every option of `shunt run` is also a variable (SHUNT_TRANSPORT, SHUNT_BUF, ...): see shunt run --help.
";

pub(crate) const RUN_NOTES: &str = "\
Numbers of bytes take k, m or g. Each option sets the variable SHUNT_OPTION (--zcopy-min: SHUNT_ZCOPY_MIN).
The library is looked for beside this command and in ../lib/shunt; SHUNT_LIBRARY=FILE names another.
Exit status: that of PROGRAM; 2 wrong option, 125 no library, 126 PROGRAM cannot be run, 127 not found.
";

pub(crate) const STAT_NOTES: &str = "\
Shows processes of this user; root sees all. SENT and RECEIVED are bytes of the program's data. The JSON has one
process a line, with the keys of SHUNT_REPORT and the descriptor (fd) of each connection.
";

pub(crate) const DEMOTE_NOTES: &str = "\
PID is every attached connection of a process, PID:FD the one at a descriptor. No byte is lost and the program notices
nothing; new connections of it are attached as before. Needed is what a debugger needs: the same user, or root.
A process that is stopped, computes, or sleeps in a call that has nothing to do with its connections does it at its
next call that has; it is named if that is later than --wait.
Exit status: 0 done, 1 not possible, 2 wrong option, 3 asked for but not done yet.
";

pub(crate) const RULES_NOTES: &str = "\
SHUNT_RULES names the file. One rule a line; the first that matches holds; a word with # in front begins a comment:

  use auto|shm|iwarp|verbs|tcp connect|listen PROGRAM ADDRESS[/PREFIX]:PORT[-PORT]

PROGRAM is the name of a program, or the path of its file if there is a / in it, with * ? [] as in the shell.
ADDRESS is *, an IPv4 address or an [IPv6] address: the peer's of a connect, that of the listening socket itself.
PORT is *, a port, or the first and the last of a range.
auto is shared memory on this host, iWARP with others whose port mapper accepts; iwarp speaks it to whom the rule names.
";

pub(crate) const PORTMAP_NOTES: &str = "\
A client on another host asks the port mapper of a server's host (UDP port 3935) before it speaks iWARP. Programs that
listen under the library with iWARP allowed (a rule with iwarp or auto, or SHUNT_TRANSPORT=iwarp) answer themselves, one
of them for all. This service answers instead, for all programs of all users, also those that may not have a
thread more. It needs no privileges and keeps nothing: it asks the kernel who listens.
Exit status: 1 the port is taken or may not be used, 2 wrong option; else it runs until it is ended.
";

pub(crate) const CHECK_NOTES: &str = "\
Prints each rule with its line. What is wrong goes to standard error, a line each; such a line of the file does not hold.
Exit status: 0 all is right, 1 something is wrong, 2 wrong option.
";
