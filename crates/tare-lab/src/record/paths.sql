-- The devices of the network path of each loader. Without a row they are not known.
CREATE TABLE IF NOT EXISTS paths (
    loader           INTEGER NOT NULL,   -- place in loaders; 0 for the client of the host
    side             TEXT NOT NULL,      -- loader, system
    name             TEXT NOT NULL,
    device           TEXT NOT NULL,      -- tare_std::net_device::NetDevice as JSON
    PRIMARY KEY (loader, side)
);
