package doctor

import (
	"fmt"
	"strings"

	"rankpool/staging/posix"
)

const (
	maxSocket = 107 // sun_path has 108 bytes, the last one 0. Source: Linux, unix(7).
	// firstUser is the first number of a person's account. Source: systemd, Users, Groups, UIDs.
	firstUser = 1000
)

// checkRuntime checks the folder for the sockets of the ranks.
func checkRuntime(env *Env) []Finding {
	r := env.Runtime
	switch {
	case r.Failure != nil:
		return bad(r.Failure.Error(), "name a folder that can be written to with --runtime-dir")
	case len(r.SocketPath) > maxSocket:
		return bad(fmt.Sprintf("a socket's path in %s would have %d bytes, and %d are possible", r.Base,
			len(r.SocketPath), maxSocket), "name a shorter folder with --runtime-dir")
	}
	if fs, err := env.Machine.FileSystem(r.Base); err == nil && fs.Reach == posix.Shared {
		return warning(fmt.Sprintf("sessions are in %s, which is on %s: sockets and locks are slow or "+
			"fail there", r.Base, fs.Type), "name a node-local folder with --runtime-dir")
	}
	if strings.HasPrefix(r.Base+"/", "/dev/shm/") && clearsIPC(env) {
		return warning(fmt.Sprintf("sessions are in %s, where systemd removes your files when you log "+
			"out of this node (RemoveIPC=yes)", r.Base),
			"do not log in to nodes of a running job, or run \"loginctl enable-linger\" there; name "+
				"another folder with --runtime-dir; or have an administrator set RemoveIPC=no in logind.conf")
	}
	return good(fmt.Sprintf("sessions are in %s, a socket's path has at most %d of %d bytes",
		r.Base, len(r.SocketPath), maxSocket))
}

// clearsIPC reports whether systemd clears this user's files in /dev/shm when his last login ends.
//
// Source: systemd, logind.conf(5): RemoveIPC; not for system users.
func clearsIPC(env *Env) bool {
	if env.Machine.UserID() < firstUser {
		return false
	}
	text, err := env.Machine.Output(commandWithin, nil, "loginctl", "show-session",
		"--property=RemoveIPC")
	return err == nil && strings.TrimSpace(text) == "RemoveIPC=yes"
}

// checkTier checks the folder of --tier.
func checkTier(env *Env) []Finding {
	tier := env.Tier
	if tier == nil {
		return nil
	}
	if tier.Unusable != nil {
		return warning(tier.Unusable.Error()+"; training continues without a tier",
			"name a folder on a local disk of the node: for keep and share the centre makes one with mode "+
				"1777 and owner root, for keep one of yours will do; see docs/memory.md")
	}
	fs, err := env.Machine.FileSystem(tier.Dir)
	if err != nil {
		return warning(err.Error(), "see whether the disk is mounted")
	}
	has := fmt.Sprintf("%s (%s) has {} free", tier.Dir, fs.Type)
	if fs.FreeBytes < tier.Bytes {
		return warning(has+", and {} may be filled: copies that are there count as filled",
			"give a smaller size (--tier DIR:SIZE), or make room", fs.FreeBytes,
			tier.Bytes)
	}
	return good(has, fs.FreeBytes)
}
