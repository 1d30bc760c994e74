module operatord.io/operatord/test

go 1.26.0
