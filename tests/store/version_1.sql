BEGIN TRANSACTION;
CREATE TABLE facts (
	sequence INTEGER NOT NULL, 
	study_id INTEGER NOT NULL, 
	"key" TEXT NOT NULL, 
	value TEXT NOT NULL, 
	time DOUBLE NOT NULL, 
	PRIMARY KEY (sequence), 
	FOREIGN KEY(study_id) REFERENCES studies (id)
);
INSERT INTO "facts" VALUES(1,1,'runner','{"host": "here", "pid": 12808, "started": 1794858832.6549988}',1.79485883265524363513e+09);
INSERT INTO "facts" VALUES(2,1,'max_epochs','null',1.7948588326614451408e+09);
INSERT INTO "facts" VALUES(3,1,'runner','null',1.79485883495905780785e+09);
INSERT INTO "facts" VALUES(4,1,'run','{"seconds": 2.3047557719999077, "lane_steps": 6, "seconds_one_by_one": null}',1.79485883495981645577e+09);
CREATE TABLE headwater_schema_version (
	id INTEGER NOT NULL, 
	version INTEGER NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "headwater_schema_version" VALUES(1,1);
CREATE TABLE notes (
	sequence INTEGER NOT NULL, 
	study_id INTEGER NOT NULL, 
	number INTEGER, 
	kind TEXT NOT NULL, 
	text TEXT NOT NULL, 
	time DOUBLE NOT NULL, 
	PRIMARY KEY (sequence), 
	FOREIGN KEY(study_id, number) REFERENCES trials (study_id, number), 
	FOREIGN KEY(study_id) REFERENCES studies (id)
);
CREATE TABLE reports (
	study_id INTEGER NOT NULL, 
	number INTEGER NOT NULL, 
	epoch INTEGER NOT NULL, 
	metrics TEXT NOT NULL, 
	time DOUBLE NOT NULL, 
	PRIMARY KEY (study_id, number, epoch), 
	FOREIGN KEY(study_id, number) REFERENCES trials (study_id, number)
);
INSERT INTO "reports" VALUES(1,0,1,'{"loss": 0.2218817174434662}',1.79485883491229486464e+09);
INSERT INTO "reports" VALUES(1,1,1,'{"loss": 0.2218817174434662}',1.79485883491229486464e+09);
INSERT INTO "reports" VALUES(1,0,2,'{"loss": 0.029741862788796425}',1.79485883492263150213e+09);
INSERT INTO "reports" VALUES(1,1,2,'{"loss": 0.06097807735204697}',1.79485883492263150213e+09);
INSERT INTO "reports" VALUES(1,2,1,'{"loss": 0.2218817174434662}',1.79485883494643378259e+09);
INSERT INTO "reports" VALUES(1,2,2,'{"loss": 0.03728120028972626}',1.79485883494965720169e+09);
CREATE TABLE studies (
	id INTEGER NOT NULL, 
	name TEXT NOT NULL, 
	metric TEXT NOT NULL, 
	mode TEXT NOT NULL, 
	seed BIGINT NOT NULL, 
	space TEXT NOT NULL, 
	settings TEXT NOT NULL, 
	created DOUBLE NOT NULL, 
	PRIMARY KEY (id), 
	UNIQUE (name)
);
INSERT INTO "studies" VALUES(1,'train-1','loss','min',0,'[{"key": "lr", "kind": "domain", "text": "uniform(0.1, 0.2)", "num_values": null}]','{"lanes": 2, "num_trials": 3, "search": "random", "num_seeds": 1, "surrogate": null, "scale": null, "part_of": null}',1.79485883059962940217e+09);
CREATE TABLE transitions (
	sequence INTEGER NOT NULL, 
	study_id INTEGER NOT NULL, 
	number INTEGER NOT NULL, 
	status TEXT NOT NULL, 
	epoch INTEGER NOT NULL, 
	error TEXT, 
	seconds DOUBLE NOT NULL, 
	time DOUBLE NOT NULL, 
	PRIMARY KEY (sequence), 
	FOREIGN KEY(study_id, number) REFERENCES trials (study_id, number)
);
INSERT INTO "transitions" VALUES(1,1,0,'running',0,NULL,0.0,1.79485883266395044328e+09);
INSERT INTO "transitions" VALUES(2,1,1,'running',0,NULL,0.0,1.79485883266395044328e+09);
INSERT INTO "transitions" VALUES(3,1,2,'running',0,NULL,0.0,1.79485883266395044328e+09);
INSERT INTO "transitions" VALUES(4,1,0,'completed',2,NULL,1.57528114999649915262e-02,1.79485883493463158609e+09);
INSERT INTO "transitions" VALUES(5,1,1,'completed',2,NULL,1.57528114999649915262e-02,1.79485883493463158609e+09);
INSERT INTO "transitions" VALUES(6,1,2,'completed',2,NULL,6.9278479998047259869e-03,1.79485883495155930517e+09);
CREATE TABLE trials (
	study_id INTEGER NOT NULL, 
	number INTEGER NOT NULL, 
	config TEXT NOT NULL, 
	seed BIGINT NOT NULL, 
	created DOUBLE NOT NULL, 
	PRIMARY KEY (study_id, number), 
	FOREIGN KEY(study_id) REFERENCES studies (id)
);
INSERT INTO "trials" VALUES(1,0,'{"codes": {"lr": 0.15847004851343457}, "shown": {"lr": 0.15847004851343457}}',0,1.79485883266287183758e+09);
INSERT INTO "trials" VALUES(1,1,'{"codes": {"lr": 0.1189411960463688}, "shown": {"lr": 0.1189411960463688}}',0,1.79485883266287183758e+09);
INSERT INTO "trials" VALUES(1,2,'{"codes": {"lr": 0.14752349507719087}, "shown": {"lr": 0.14752349507719087}}',0,1.79485883266287183758e+09);
CREATE INDEX facts_by_study ON facts (study_id);
CREATE INDEX transitions_by_trial ON transitions (study_id, number);
CREATE INDEX notes_by_trial ON notes (study_id, number);
COMMIT;
