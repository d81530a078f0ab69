//! Flags: what to write into the command line or the unit of a container, a service or a database so
//! that it runs as the plan has it. One file per consumer; `ALL` drives `tare tune flags --for`.
